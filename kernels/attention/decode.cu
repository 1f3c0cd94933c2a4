// Kernels of attention with few queries for each sequence: keys and values read once, by all blocks
// alike, whatever the lengths are. The manifest says which instances exist and where each is legal.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "decode.cuh"
#include "decode_combine.cuh"

namespace attention {

// Kernel is a Decode<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    decode(const __grid_constant__ DecodeCall call) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Kernel(call, shared).Run();
}

// Kernel is a Combine<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    decode_combine(const __grid_constant__ DecodeCall call) {
  Kernel::Run(call);
}

}  // namespace attention
