// The grouped products of tiles, for every GPU: which tile a block computes, and of what. Grids are
// sized by bounds, so that blocks past the last tile have nothing to do.
#pragma once

#include "groups.cuh"
#include "tile.cuh"

namespace grouped {

// y[M, N]: rows of group g times w[g], which is K x N, or with kTrans N x K. Rows of no group: 0.
template <typename T, typename O, bool kTrans, bool kVector>
__device__ __forceinline__ void MultiplyGroups(typename Tile<T>::Memory& memory, O* y, const T* x,
                                               const T* w, const O* bias, const int* offsets,
                                               const int* tiles, int G, int M, int N, int K) {
  using C = Tile<T>;
  using Bits = typename C::Bits;
  using OutBits = typename Element<O>::Bits;
  const int of_columns = (N - 1) / C::kColumns + 1;
  const int64 tile = blockIdx.x / of_columns;
  const int column = static_cast<int>(blockIdx.x % of_columns) * C::kColumns;
  const int group = GroupOf(tiles, G, tile);
  if (group < 0) return;
  const int first = offsets[group], rows = (group == G ? M : offsets[group + 1]) - first;
  const int row = static_cast<int>(tile - tiles[group]) * C::kRows;
  const int64 at = int64{group} * N * K;
  const bool some = group < G;
  C c;
  c.template Sum<false, !kTrans, kVector>(
      memory,
      Operand<Bits>{reinterpret_cast<const Bits*>(x) + int64{first} * K, K, rows, some ? K : 0},
      row, Operand<Bits>{reinterpret_cast<const Bits*>(w) + (some ? at : 0), kTrans ? K : N, N, K},
      column);
  const OutBits* added = reinterpret_cast<const OutBits*>(bias);
  if (added != nullptr) added = some ? added + int64{group} * N : nullptr;
  Store<O, kVector>(c, reinterpret_cast<OutBits*>(y) + int64{first} * N, added, row, rows, column,
                    N);
}

// dw[G, K, N]: of each group x^T dy. A group without rows has zeros.
template <typename T, typename O, bool kVector>
__device__ __forceinline__ void SumGroups(typename Tile<T>::Memory& memory, O* dw, const T* x,
                                          const T* dy, const int* offsets, int N, int K) {
  using C = Tile<T>;
  using Bits = typename C::Bits;
  const int of_columns = (N - 1) / C::kColumns + 1, of_rows = (K - 1) / C::kRows + 1;
  const unsigned within = blockIdx.x % (of_columns * of_rows);
  const int group = static_cast<int>(blockIdx.x / (of_columns * of_rows));
  const int row = static_cast<int>(within / of_columns) * C::kRows;
  const int column = static_cast<int>(within % of_columns) * C::kColumns;
  const int first = offsets[group], count = offsets[group + 1] - first;
  C c;
  c.template Sum<true, true, kVector>(
      memory, Operand<Bits>{reinterpret_cast<const Bits*>(x) + int64{first} * K, K, K, count}, row,
      Operand<Bits>{reinterpret_cast<const Bits*>(dy) + int64{first} * N, N, N, count}, column);
  Store<O, kVector>(c, reinterpret_cast<typename Element<O>::Bits*>(dw) + int64{group} * K * N,
                    nullptr, row, K, column, N);
}

// dbias[G, N]: the sums of each group's rows of dy, each in one order. Grid: 32 columns in x.
template <typename T>
__device__ __forceinline__ void SumRows(T* dbias, const T* dy, const int* offsets, int N) {
  using Bits = typename Element<T>::Bits;
  constexpr int kWarps = kThreads / 32;
  __shared__ float of_warp[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int of_columns = (N - 1) / 32 + 1;
  const int n = static_cast<int>(blockIdx.x % of_columns) * 32 + lane;
  const int64 group = blockIdx.x / of_columns;
  const int last = offsets[group + 1];
  float sum = 0.0f;
  if (n < N) {
#pragma unroll 4
    for (int m = offsets[group] + warp; m < last; m += kWarps) {
      sum += Element<T>::FromBits(reinterpret_cast<const Bits*>(dy)[int64{m} * N + n]);
    }
  }
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || n >= N) return;
#pragma unroll
  for (int i = 1; i < kWarps; ++i) sum += of_warp[i][lane];
  reinterpret_cast<Bits*>(dbias)[group * N + n] = Element<T>::ToBits(sum);
}

}  // namespace grouped
