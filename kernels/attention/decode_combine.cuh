// Adds up the partial results of units that the borders of parts cut (decode_split.h).
//
// A block takes up to eight rows where a part begins, if that is the first border inside a unit;
// the warps of a row divide its partial results, which may be as many as there are parts. Blocks
// with nothing to add up make room at once for the kernel behind, but for one: this kernel must not
// end before the one in front.
#pragma once

#include "decode_block.cuh"

namespace attention {

// C, of keys and values, it does not see.
template <typename T, typename C, int kHead, int kRowWarps, int kKeys>
struct Combine {
  static constexpr int kRows = kRowWarps * 16;  // of a block of the first kernel
  static constexpr int kWarps = 8, kThreads = kWarps * 32;
  static constexpr int kColumns = kHead / 32;  // of a lane: 4 in a row, the next ones 128 further
  static constexpr int kVector = kColumns < 4 ? kColumns : 4;

  __device__ static __forceinline__ int ColumnOf(int lane, int i) {
    return i / kVector * 128 + lane * kVector + i % kVector;
  }

  // What this block adds up, at `place`; nothing, first > last, of most blocks.
  __device__ static __forceinline__ Cut CutOf(const DecodeCall& call, const Place& place, int part,
                                              int rows) {
    if (rows <= 0 || PartBegin(place.total, call.parts, part) >= place.total) return {1, 0};
    return CutAt(place.total, call.parts, part, place.spot);
  }

  __device__ static __forceinline__ void Run(const DecodeCall& call) {
    __shared__ float tops[kWarps], totals[kWarps], outs[kWarps][kHead];
    const int blocks = (call.AllRows() + kRows - 1) / kRows;
    const int part = blockIdx.x + 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Place place = FindPlace<kThreads, kKeys>(call, part, call.kv_heads * blocks);
    LetNextKernelStart();
    const int first = place.spot.unit % blocks * kRows + blockIdx.y * kWarps;  // row
    const int in_unit = min(kRows, call.AllRows() - place.spot.unit % blocks * kRows);
    const int rows = min(kWarps, in_unit - static_cast<int>(blockIdx.y) * kWarps);
    const Cut cut = CutOf(call, place, part, rows);
    const bool works = cut.first <= cut.last;
    if (works || blockIdx.x + blockIdx.y == 0) WaitForEarlierKernels();
    if (!works) return;

    const int team = rows > 4 ? 1 : rows > 2 ? 2 : rows > 1 ? 4 : 8;  // warps of a row
    const int local = warp / team;
    Partial<kColumns> mine = {-Infinity(), 0.0f, {}};
    if (local < rows) {
#pragma unroll 4
      for (int p = cut.first + warp % team; p <= cut.last; p += team) {
        const int64 slot = static_cast<int64>(p) * 2 + SlotOf(p == cut.first);
        const int64 at = slot * call.rows + blockIdx.y * kWarps + local;
        const float2 sums = *reinterpret_cast<const float2*>(call.sums + at * 2);
        float o[kColumns];
#pragma unroll
        for (int i = 0; i < kColumns; ++i) o[i] = call.partial[at * kHead + ColumnOf(lane, i)];
        mine.Add(sums.x, sums.y, o);
      }
    }
    tops[warp] = mine.top;
    totals[warp] = mine.total;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) outs[warp][ColumnOf(lane, i)] = mine.o[i];
    __syncthreads();
    if (local >= rows || warp % team != 0) return;
    for (int w = warp + 1; w < warp + team; ++w) {
      float o[kColumns];
#pragma unroll
      for (int i = 0; i < kColumns; ++i) o[i] = outs[w][ColumnOf(lane, i)];
      mine.Add(tops[w], totals[w], o);
    }
#pragma unroll
    for (int i = 0; i < kColumns; i += kVector)
      WriteRow<T, kVector>(call, place.spot.sequence, place.spot.unit / blocks, first + local,
                           ColumnOf(lane, i), mine.o + i, mine.top, mine.total);
  }
};

}  // namespace attention
