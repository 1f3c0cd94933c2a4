// Kernels of attention with few queries for each sequence: keys and values read once, by all blocks
// alike, whatever the lengths are. The manifest says which instances exist and where each is legal.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "decode.cuh"
#include "decode_combine.cuh"

namespace attention {

// kBlocks: on one multiprocessor.
template <typename T, typename C, int kHead, int kRowWarps, int kKeys, int kStages, int kPlain,
          int kPaged, int kBlocks>
__global__ void __launch_bounds__(128, kBlocks)
    decode(const __grid_constant__ DecodeCall<T, C> call) {
  extern __shared__ __align__(1024) unsigned char shared[];
  using Shape = DecodeShape<T, C, kHead, kRowWarps, kKeys, kStages, kPaged != 0>;
  Decode<Shape, kPlain ? 0 : kAnyMod>(call, shared).Run();
}

template <typename T, typename C, int kHead, int kRowWarps, int kKeys>
__global__ void __launch_bounds__(256)
    decode_combine(const __grid_constant__ DecodeCall<T, C> call) {
  Combine<T, C, kHead, kRowWarps * 16, kKeys>::Run(call);
}

}  // namespace attention
