// What a block of the decode kernels does as a whole: it finds its place in the row of tiles
// (decode_split.h), from lengths on the device.
#pragma once

#include "decode_split.h"
#include "kbundle/device_order.h"
#include "params.cuh"

struct __nv_fp8_e4m3;

namespace attention {

using kbundle::device::LetNextKernelStart;
using kbundle::device::WaitForEarlierKernels;

// What a call computes, as manifests fill it by name. C is the type of k and v, whose strides from
// batch to batch are 0 where a page table says which rows of them a sequence has.
template <typename T, typename C>
struct DecodeCall {
  T* o;
  float* stats;    // or null
  float* partial;  // [parts, 2, rows, kHead], of a unit's rows
  float* sums;     // [parts, 2, rows, 2]: the largest score, in powers of two, and the sum over it
  const T* q;
  const C* k;
  const C* v;
  const int* q_lengths;
  const int* kv_lengths;
  const int* pages;      // [batches, table] or null
  const float* k_scale;  // or null: 1
  const float* v_scale;
  Strides q_strides, k_strides, v_strides, o_strides;
  int batches, heads, kv_heads, queries, keys, head, head_v;
  int rows;  // of partial results: all rows that share a key head, at most those of a block
  int parts;
  int mask, window, mod;
  int page_count, page_log2, table;
  float scale;
  ScoreArgs score;

  __device__ __forceinline__ int Group() const { return heads / kv_heads; }
  __device__ __forceinline__ int AllRows() const { return Group() * queries; }
  __device__ __forceinline__ Mask MaskAt(int b) const {
    return MaskOf(mask, window, q_lengths, kv_lengths, b, queries, keys);
  }
};

// The type that the tensor cores multiply: that of q, or f16, which has every number of e4m3.
template <typename T, typename C>
struct Multiplied {
  using Type = T;
};
template <typename T>
struct Multiplied<T, __nv_fp8_e4m3> {
  using Type = __half;
};

// The keys that any query of a sequence sees; {0, 0} of none.
__device__ __forceinline__ Range SeenBy(const Mask& mask, int queries) {
  const Range seen = mask.KeysOfBlock(0, queries);
  return seen.begin < seen.end ? seen : Range{0, 0};
}

// Tiles of kKeys keys that these lie in, at least one.
template <int kKeys>
__device__ __forceinline__ int TilesOf(const Range& seen) {
  return (seen.end - 1) / kKeys - seen.begin / kKeys + 1;
}

// The row of all tiles, and where a part of it begins.
struct Place {
  Tiles total;
  Spot spot;  // undefined where the part is empty
};

// By all threads of a block, once.
template <int kThreads, int kKeys, typename T, typename C>
__device__ __forceinline__ Place FindPlace(const DecodeCall<T, C>& call, int part, int units) {
  __shared__ Tiles ends[kThreads / 32];
  __shared__ Spot found;
  const auto tiles = [&](int b) { return TilesOf<kKeys>(SeenBy(call.MaskAt(b), call.queries)); };
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int each = (call.batches + kThreads - 1) / kThreads;
  const int first = min(thread * each, call.batches), last = min(first + each, call.batches);
  Tiles own = 0;
  for (int b = first; b < last; ++b) own += tiles(b);
  own *= units;
  Tiles end = own;  // of this thread's sequences among those of the warp, then of all
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const Tiles before = __shfl_up_sync(kAllLanes, end, step);
    if (lane >= step) end += before;
  }
  if (lane == 31) ends[warp] = end;
  __syncthreads();
  Tiles total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) end += ends[w];
    total += ends[w];
  }
  const Tiles at = PartBegin(total, call.parts, part);
  if (at >= end - own && at < end) found = SpotOf(at, first, end - own, units, tiles);
  __syncthreads();
  return {total, found};
}

// Some columns of a row of a key head, whose scores have the sum `total` over 2^top. A row that
// sees nothing is 0, its statistic -inf.
template <int kColumns, typename T, typename C>
__device__ __forceinline__ void WriteRow(const DecodeCall<T, C>& call, int b, int kv, int row,
                                         int column, const float* o, float top, float total) {
  const int group = call.Group(), q = row / group, h = kv * group + row % group;
  const bool empty = total == 0.0f;
  if (column == 0 && call.stats != nullptr)
    call.stats[(static_cast<int64>(b) * call.heads + h) * call.queries + q] =
        empty ? -Infinity() : top * kLn2 + logf(total);
  if (column >= call.head_v) return;
  const float scale = call.v_scale == nullptr ? 1.0f : *call.v_scale;
  const float inverse = empty ? 0.0f : scale / total;
  unsigned* to =
      reinterpret_cast<unsigned*>(call.o + b * call.o_strides.batch + q * call.o_strides.token +
                                  h * call.o_strides.head + column);
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i)
    to[i] = Element<T>::Pack(o[2 * i] * inverse, o[2 * i + 1] * inverse);
}

}  // namespace attention
