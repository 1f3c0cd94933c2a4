// Kernels of attention with few queries for each sequence whose blocks add up in clusters. The
// manifest says which instances exist and where each is legal.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "decode_cluster.cuh"

namespace attention {

// Block is a Decode<..>.
template <typename Block>
__global__ void __launch_bounds__(Block::kThreads, Block::kBlocks)
    decode_cluster(const __grid_constant__ DecodeCall call) {
  extern __shared__ __align__(1024) unsigned char shared[];
  ClusterDecode<Block>(call, shared).Run();
}

}  // namespace attention
