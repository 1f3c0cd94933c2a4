// Which row each token of each of its k experts goes to, when rows are numbered expert by expert,
// and within an expert token by token. For CUDA kernels.
//
// Tokens are taken in parts. counts[part, expert] says how often a part names an expert;
// sum_part_counts makes of it how often the parts before do, and of all parts the total;
// write_compact_map, a warp for a part, adds the rows of the experts before, each padded to a
// multiple of `align`, and the entries before in the part. Entries that name no expert have row -1.
//
// A map's row: k rows, then the k slots they belong to (0, 1, ..), then k: a row_id_map of k
// experts.
#pragma once

#include "kbundle/device_element.h"

namespace kbundle {
namespace device {

__device__ __forceinline__ int ScanLanes(int value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

// A block of 8 experts and blockDim.x / 8 segments of the parts; whole warps, at most 32.
__device__ __forceinline__ void SumPartCounts(int* counts, int* totals, int experts, int parts) {
  constexpr int kHeld = 16;  // of a segment in registers; those of a longer one are read twice
  __shared__ int sums[32][8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int column = threadIdx.x % 8, segment = threadIdx.x / 8, segments = blockDim.x / 8;
  const int expert = blockIdx.x * 8 + column;
  const int each = (parts + segments - 1) / segments;
  const int begin = min(segment * each, parts);
  const int end = expert < experts ? min(begin + each, parts) : begin;
  int held[kHeld];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      held[i] = first + i < end ? counts[static_cast<int64>(first + i) * experts + expert] : 0;
  };
  int sum = 0;
  for (int first = begin; first < end; first += kHeld) {
    load(first);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum += held[i];
  }
  int before = sum;  // and that of the warp's segments before, then of all before
#pragma unroll
  for (int distance = 8; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane >= 24) sums[warp][column] = before;
  before -= sum;
  __syncthreads();
  for (int c = warp; c < 8; c += warps) {
    const int of_warp = lane < warps ? sums[lane][c] : 0, upto = ScanLanes(of_warp, lane);
    if (lane < warps) sums[lane][c] = upto - of_warp;
    if (lane == 31 && blockIdx.x * 8 + c < experts) totals[blockIdx.x * 8 + c] = upto;
  }
  __syncthreads();
  before += sums[warp][column];
  for (int first = begin; first < end; first += kHeld) {
    if (each > kHeld) load(first);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (first + i < end) counts[static_cast<int64>(first + i) * experts + expert] = before;
      before += held[i];
    }
  }
}

// A block of one warp for each part; the first writes where each expert's rows begin, too.
template <int kMostExperts>
__device__ __forceinline__ void WriteCompactMap(int* map, int* offsets, const int* totals,
                                                const int* counts, const int* indices, int64 tokens,
                                                int k, int experts, int align, int part_tokens) {
  constexpr int kExperts = 8, kEntries = 4;  // loads of a lane that wait for memory together
  __shared__ int next[kMostExperts];
  const int lane = threadIdx.x % 32;
  const int64 part = blockIdx.x;
  const int64 begin = part * part_tokens * k;
  const int64 end = min(tokens, (part + 1) * part_tokens) * k;
  int named[kEntries];  // experts of the entries that come next: asked for long before
  const auto load = [&](int64 first) {
#pragma unroll
    for (int j = 0; j < kEntries; ++j) {
      const int64 i = first + j * 32 + lane;
      named[j] = i < end ? indices[i] : -1;
    }
  };
  load(begin);
  int before = 0;
  for (int first = 0; first < experts; first += 32 * kExperts) {
    int totals_here[kExperts], counts_here[kExperts];
#pragma unroll
    for (int i = 0; i < kExperts; ++i) {
      const int expert = first + i * 32 + lane;
      totals_here[i] = expert < experts ? totals[expert] : 0;
      counts_here[i] = expert < experts ? counts[part * experts + expert] : 0;
    }
#pragma unroll
    for (int i = 0; i < kExperts; ++i) {
      const int expert = first + i * 32 + lane;
      const int padded = (totals_here[i] + align - 1) / align * align;
      const int sum = ScanLanes(padded, lane);
      if (expert < experts) {
        const int start = before + sum - padded;
        next[expert] = start + counts_here[i];
        if (part == 0) offsets[expert] = start;
      }
      before += __shfl_sync(kAllLanes, sum, 31);
    }
  }
  if (part == 0 && lane == 0) offsets[experts] = before;
  __syncwarp();
  const int width = 2 * k + 1;
  for (int64 first = begin; first < end; first += 32 * kEntries) {
    int experts_here[kEntries];
#pragma unroll
    for (int j = 0; j < kEntries; ++j) experts_here[j] = named[j] < experts ? named[j] : -1;
    load(first + 32 * kEntries);
#pragma unroll
    for (int j = 0; j < kEntries; ++j) {
      const int64 i = first + j * 32 + lane;
      if (first + j * 32 >= end) break;
      const int expert = experts_here[j];
      const unsigned same = __match_any_sync(kAllLanes, expert >= 0 ? expert : -1 - lane);
      const int row = expert >= 0 ? next[expert] + __popc(same & ((1u << lane) - 1)) : -1;
      __syncwarp();
      if (expert >= 0 && same >> lane == 1) next[expert] = row + 1;
      __syncwarp();
      if (i < end) {
        const unsigned token = static_cast<unsigned>(i) / static_cast<unsigned>(k);
        const int slot =
            static_cast<int>(static_cast<unsigned>(i) - token * static_cast<unsigned>(k));
        int* const entries = map + static_cast<int64>(token) * width;
        entries[slot] = row;
        entries[k + slot] = slot;
        if (slot == 0) entries[2 * k] = k;
      }
    }
  }
}

}  // namespace device
}  // namespace kbundle
