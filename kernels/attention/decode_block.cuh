// What a block of the decode kernels does as a whole: it finds its place in the row of tiles
// (decode_split.h), from lengths on the device.
#pragma once

#include "decode_split.h"
#include "kbundle/device_order.h"
#include "kbundle/device_prefetch.h"
#include "params.cuh"

struct __nv_fp8_e4m3;

namespace attention {

using kbundle::device::LetNextKernelStart;
using kbundle::device::PrefetchSector;
using kbundle::device::WaitForEarlierKernels;

// What a call computes, as manifests fill it by name. Elements are bits, of types that a kernel's
// template argument knows; strides of k and v from batch to batch are 0 where a page table says
// which rows of them a sequence has.
struct DecodeCall {
  unsigned short* o;
  float* stats;    // or null
  float* partial;  // [parts, 2, rows, kHead], of a unit's rows
  float* sums;     // [parts, 2, rows, 2]: the largest score, in powers of two, and the sum over it
  const unsigned short* q;
  const void *k, *v;
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

  // Whether the device knows of lengths, which may differ from sequence to sequence.
  __device__ __forceinline__ bool Varies() const {
    return q_lengths != nullptr || kv_lengths != nullptr;
  }
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

// By all threads of a block, once. Where all sequences have as many tiles it reads no memory.
template <int kThreads, int kKeys>
__device__ __forceinline__ Place FindPlace(const DecodeCall& call, int part, int units) {
  __shared__ Tiles ends[kThreads / 32];
  __shared__ Spot found;
  const auto tiles = [&](int b) { return TilesOf<kKeys>(SeenBy(call.MaskAt(b), call.queries)); };
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const bool equal = !call.Varies();
  int first = 0;
  Tiles own = 0, end = 0, total = 0;  // of this thread's sequences, which begin with `first`
  if (equal) {
    own = static_cast<Tiles>(tiles(0)) * units;
    total = own * call.batches;
  } else {
    const int each = (call.batches + kThreads - 1) / kThreads;
    first = min(thread * each, call.batches);
    const int last = min(first + each, call.batches);
    for (int b = first; b < last; ++b) own += tiles(b);
    own *= units;
    end = own;  // among those of the warp, then of all
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const Tiles before = __shfl_up_sync(kAllLanes, end, step);
      if (lane >= step) end += before;
    }
    if (lane == 31) ends[warp] = end;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) end += ends[w];
      total += ends[w];
    }
  }
  const Tiles at = PartBegin(total, call.parts, part);
  if (equal) {
    first = static_cast<int>(at / own);
    end = (first + Tiles{1}) * own;
  }
  const bool finds = at < total && at >= end - own && at < end && (!equal || thread == 0);
  if (finds) found = SpotOf(at, first, end - own, units, tiles);
  __syncthreads();
  return {total, found};
}

// Sums of a row over 2^top.
template <int kColumns>
struct Partial {
  float top, total;
  float o[kColumns];

  __device__ __forceinline__ void Add(float other_top, float other_total, const float* other) {
    const float high = fmaxf(top, other_top);
    const float mine = top == high ? 1.0f : Exp2(top - high);
    const float theirs = other_top == high ? 1.0f : Exp2(other_top - high);
    top = high;
    total = total * mine + other_total * theirs;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) o[i] = o[i] * mine + other[i] * theirs;
  }
};

// Some columns of a row of a key head, whose scores have the sum `total` over 2^top. A row that
// sees nothing is 0, its statistic -inf.
template <typename T, int kColumns>
__device__ __forceinline__ void WriteRow(const DecodeCall& call, int b, int kv, int row, int column,
                                         const float* o, float top, float total) {
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
