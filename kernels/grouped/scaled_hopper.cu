// The kernel of the scaled products for sm_90a: scaled_hopper.cuh.
#include "scaled_hopper.cuh"

namespace grouped {

template <typename Q, typename O, int kColumns, int kStages>
__global__ void __launch_bounds__(384, 1)
    scaled_by_warp_groups(O* y, const __grid_constant__ TensorMap x,
                          const __grid_constant__ TensorMap w, const float* x_scale_inv,
                          int64 x_row, int64 x_depth, const float* w_scale_inv, int64 w_group,
                          int64 w_columns, int64 w_depth, const int* sizes, const O* bias, int G,
                          int M, int N, int K) {
  using C = Scaled<Q, O, kColumns, kStages>;
  using Bits = typename C::OutBits;
  extern __shared__ unsigned char raw[];
  __shared__ typename C::Memory memory;
  FindPlaces<C::kThreads>(memory.offsets, memory.tiles, sizes, G, M, C::kRows);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&memory.full[i], 1 + 32);  // of the engine, and of a warp's scales
      InitBarrier(&memory.empty[i], C::kMath / 32);
    }
    FenceBarriers();
    PrefetchMap(&x);
    PrefetchMap(&w);
  }
  __syncthreads();
  C c{memory, (SharedAddress(raw) + 1023u) & ~1023u, {G, M, N, K}};
  if (threadIdx.x >= C::kMath) {
    GiveRegisters<56>();
    if (threadIdx.x < C::kMath + 32)
      c.LoadAll(&x, &w, {x_scale_inv, x_row, x_depth}, {w_scale_inv, w_group, w_columns, w_depth});
  } else {
    TakeRegisters<224>();
    c.MultiplyAll(reinterpret_cast<Bits*>(y), reinterpret_cast<const Bits*>(bias),
                  static_cast<int>(threadIdx.x) / 128);
  }
}

}  // namespace grouped
