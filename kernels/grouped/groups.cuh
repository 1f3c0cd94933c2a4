// Where groups of rows lie. Sizes come from a tensor and may be anything: a negative one is 0, and
// rows end with M, whatever is left of the sizes. Rows of no group come last, as group G.
//
// One block adds the sizes up, once a call; whoever comes after it trusts what it wrote.
#pragma once

#include "ptx.cuh"

namespace grouped {

// offsets[G + 1]: the first row of each group, and behind the last one; tiles[G + 2]: the first of
// each group's tiles of `rows` rows, and behind those of group G.
template <int kThreads>
__device__ __forceinline__ void FindPlaces(int* offsets, int* tiles, const int* sizes, int G, int M,
                                           int rows) {
  constexpr int kWarps = kThreads / 32;
  __shared__ int64 of_warp[kWarps];
  __shared__ int64 before[2];  // rows, tiles of the groups of earlier rounds
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int64 all;  // the sum of what all threads gave
  // Sums up to this thread's number. Every thread must call it.
  const auto sum_up = [&](int64 x) {
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const int64 other = __shfl_up_sync(kbundle::device::kAllLanes, x, by);
      if (lane >= by) x += other;
    }
    __syncthreads();
    if (lane == 31) of_warp[warp] = x;
    __syncthreads();
    all = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      if (i == warp) x += all;
      all += of_warp[i];
    }
    return x;
  };
  if (thread < 2) before[thread] = 0;
  for (int start = 0; start <= G; start += kThreads) {
    const int g = start + thread;
    const int64 size = g < G ? max(sizes[g], 0) : g == G ? M : 0;
    const int64 rows_up_to = sum_up(size);
    const int64 last = min(before[0] + rows_up_to, static_cast<int64>(M));
    const int64 first = min(before[0] + rows_up_to - size, static_cast<int64>(M));
    const int64 next_rows = before[0] + all;
    const int64 mine = (last - first + rows - 1) / rows;
    const int64 tiles_up_to = sum_up(mine);
    if (g <= G) {
      offsets[g] = static_cast<int>(first);
      tiles[g] = static_cast<int>(before[1] + tiles_up_to - mine);
      if (g == G) tiles[G + 1] = static_cast<int>(before[1] + tiles_up_to);
    }
    const int64 next_tiles = before[1] + all;
    __syncthreads();
    if (thread == 0) before[0] = min(next_rows, static_cast<int64>(M)), before[1] = next_tiles;
    __syncthreads();
  }
}

// The group of a tile: tiles[group] <= tile < tiles[group + 1]; -1: there is no such tile.
__device__ __forceinline__ int GroupOf(const int* tiles, int G, int64 tile) {
  if (tile >= tiles[G + 1]) return -1;
  int low = 0, high = G;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (tiles[middle] <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace grouped
