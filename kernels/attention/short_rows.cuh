// Scores of 64 queries by 64 keys in the registers of four warps, and the softmax of them.
//
// Thread t has the rows RowOf, which is 16 (t / 32) + t % 32 / 4, and 8 further down, of both the
// columns 8 j + t % 4 * 2 and the next: c[4 j], c[4 j + 1] are the first row's, c[4 j + 2],
// c[4 j + 3] the other's. So a row lies in four lanes.
#pragma once

#include "ptx.cuh"
#include "short_walk.h"

namespace attention {

// What is so far of a thread's two rows: the largest score, this thread's part of the sum of
// powers, and by what the last scores shrank what was before.
struct ShortRows {
  float most[2] = {-Infinity(), -Infinity()}, sum[2] = {0.0f, 0.0f}, shrink[2];

  __device__ static __forceinline__ int RowOf(const ShortTile& tile) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    return tile.top + thread / 32 * 16 + thread % 32 / 4;
  }

  // Scores with the keys from `key` on that a row does not see become -inf.
  __device__ static __forceinline__ void Hide(float (&s)[32], const ShortCall& call, int row,
                                              int key) {
    key += static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int begin = call.Begin(row + 8 * half) - key, end = call.End(row + 8 * half) - key;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const int at = 8 * (j / 2) + j % 2;
        if (at < begin || at >= end) s[4 * (j / 2) + 2 * half + j % 2] = -Infinity();
      }
    }
  }

  // Scores with the keys of a tile's slot number `at` to powers of them.
  __device__ __forceinline__ void Weigh(float (&s)[32], const ShortCall& call,
                                        const ShortTile& tile, int at) {
    const float by = fmaxf(fabsf(call.scale) * kLog2e, 1e-30f);  // times 0, -inf would be NaN
    const int key = (tile.begin + at) * kShortRows;
    if (key + kShortRows > call.End(tile.top) ||
        key < call.Begin(min(tile.top + kShortRows, call.queries) - 1))
      Hide(s, call, RowOf(tile), key);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most_of[4] = {most[half], most[half], most[half], most[half]};
#pragma unroll
      for (int j = 0; j < 16; ++j)
        most_of[j % 4] = fmaxf(most_of[j % 4], s[4 * (j / 2) + 2 * half + j % 2]);
      float now = fmaxf(fmaxf(most_of[0], most_of[1]), fmaxf(most_of[2], most_of[3]));
      now = fmaxf(now, __shfl_xor_sync(kAllLanes, now, 1));
      now = fmaxf(now, __shfl_xor_sync(kAllLanes, now, 2));
      const float zero = now == -Infinity() ? 0.0f : now * by;
      shrink[half] = Exp2(most[half] * by - zero);
      most[half] = now;
      float sums[2] = {sum[half] * shrink[half], 0.0f};
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        float& one = s[4 * (j / 2) + 2 * half + j % 2];
        one = Exp2(__fmaf_rn(one, by, -zero));
        sums[j % 2] += one;
      }
      sum[half] = sums[0] + sums[1];
    }
  }

  // Powers as the operand of a product.
  template <typename T>
  __device__ static __forceinline__ void Pack(unsigned (&p)[4][4], const float (&s)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i / 4][i % 4] = Element<T>::Pack(s[2 * i], s[2 * i + 1]);
  }

  // Sums of values, of which there were some before the last scores. Mostly no row has a new
  // maximum.
  __device__ __forceinline__ void Shrink(float (&o)[64]) const {
    if (__all_sync(kAllLanes, shrink[0] == 1.0f && shrink[1] == 1.0f)) return;
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] *= shrink[i / 2 % 2];
  }

  // Writes a tile's stats, and returns in `inverse` by what sums of values are to be multiplied.
  __device__ __forceinline__ void Finish(float (&inverse)[2], const ShortCall& call,
                                         const ShortTile& tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = sum[half];
      all += __shfl_xor_sync(kAllLanes, all, 1);
      all += __shfl_xor_sync(kAllLanes, all, 2);
      inverse[half] = all == 0.0f ? 0.0f : kbundle::device::Reciprocal(all);
      const int row = RowOf(tile) + 8 * half;
      if (call.stats != nullptr && row < call.queries && threadIdx.x % 4 == 0)
        call.stats[(int64{tile.b} * call.heads + tile.head) * call.queries + row] =
            all == 0.0f ? -Infinity() : most[half] * fabsf(call.scale) + __logf(all);
    }
  }
};

}  // namespace attention
