// The kernel of the scaled products for every GPU: scaled_tile.cuh, a block a tile.
#include "kbundle/device_order.h"
#include "scaled_tile.cuh"

namespace grouped {

template <typename Q, typename O, bool kVector>
__global__ void __launch_bounds__(kThreads)
    multiply_scaled(O* y, const void* x, const void* w, const float* x_scale_inv, int64 x_row,
                    int64 x_depth, const float* w_scale_inv, int64 w_group, int64 w_columns,
                    int64 w_depth, const O* bias, const int* offsets, const int* tiles, int G,
                    int M, int N, int K) {
  __shared__ ScaledTile::Memory memory;
  kbundle::device::WaitForEarlierKernels();
  MultiplyScaled<Q, O, kVector>(memory, y, static_cast<const unsigned char*>(x),
                                static_cast<const unsigned char*>(w), {x_scale_inv, x_row, x_depth},
                                {w_scale_inv, w_group, w_columns, w_depth}, bias, offsets, tiles,
                                {G, M, N, K});
}

}  // namespace grouped
