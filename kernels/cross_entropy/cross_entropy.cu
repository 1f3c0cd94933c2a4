// Kernels of the cross-entropy ops that compute rows. The manifest says which instances exist, and
// where each is legal.
//
// T is float, __half or __nv_bfloat16; VEC elements travel together: 16 bytes, or one element where
// tensors are not aligned. Rows are int64; every grid is clamped by the manifest and walked by a
// loop.
#include "backward.cuh"

namespace loss {

#define LOSS_KERNEL(blocks) __global__ void __launch_bounds__(Team::kThreads, blocks)

template <typename T, int VEC, int BATCH, typename Team>
LOSS_KERNEL(1024 / Team::kThreads)
forward(const Call call) {
  ForwardRows<T, VEC, BATCH>(call, Team(blockDim.x), blockIdx.x, gridDim.x);
}

// One that needs no team: more threads, with less registers each.
template <typename T, int VEC, int BATCH, typename Team>
LOSS_KERNEL(1280 / Team::kThreads)
backward(const Call call, int pieces) {
  BackwardRows<T, VEC, BATCH>(call, Team(blockDim.x), pieces, blockIdx.x, gridDim.x);
}

// While one block waits for its team others move data: three of 384 threads on a multiprocessor.
template <typename T, int VEC, typename Team>
LOSS_KERNEL(Team::kThreads == 384 ? 3 : 8)
fused(const Call call) {
  extern __shared__ Words4 row[];
  FusedRows<T, VEC>(call, Team(blockDim.x), row, blockDim.x, blockIdx.x, gridDim.x);
}

template <typename T, int VEC, int BATCH, typename Team>
LOSS_KERNEL(1024 / Team::kThreads)
fused_long(const Call call) {
  FusedLongRows<T, VEC, BATCH>(call, Team(blockDim.x), blockIdx.x, gridDim.x);
}

}  // namespace loss
