// Which keys a query sees, and which blocks of keys or queries a block has to visit.
//
// A query q sees the keys lo <= k < hi. The lengths come from the device: they are clamped before
// anything is derived from them.
#pragma once

namespace attention {

enum MaskKind { kMaskNone, kMaskCausal, kMaskCausalBottomRight };  // in the order of the manifest

struct Range {
  int begin, end;
};

struct Mask {
  int queries, keys;  // of this batch, at most SQ and SKV
  int diagonal;       // a causal query sees k <= q + diagonal
  int window;         // at most this far to the left of the diagonal; any distance when negative
  bool causal;

  // Of a query: its keys. Empty past the last query.
  __device__ __forceinline__ Range KeysOf(int q) const {
    Range range = {0, keys};
    if (causal) {
      range.end = min(keys, q + diagonal + 1);
      if (window >= 0) range.begin = max(0, q + diagonal - window);
    }
    if (q >= queries) range.end = 0;
    return range;
  }

  // Of the queries first .. first + count - 1: the keys that any of them sees.
  __device__ __forceinline__ Range KeysOfBlock(int first, int count) const {
    const int last = min(first + count, queries) - 1;
    if (last < first) return {0, 0};
    return {KeysOf(first).begin, KeysOf(last).end};
  }

  // Of the keys first .. first + count - 1: the queries that see any of them.
  __device__ __forceinline__ Range QueriesOfBlock(int first, int count) const {
    const int last = min(first + count, keys) - 1;
    if (last < first) return {0, 0};
    Range range = {0, queries};
    if (causal) {
      range.begin = max(0, first - diagonal);
      if (window >= 0) range.end = min(queries, max(0, last + window - diagonal + 1));
    }
    return range;
  }

  // Whether every query of a block sees every key of a block.
  __device__ __forceinline__ bool Whole(int query, int query_count, int key, int key_count) const {
    if (query + query_count > queries || key + key_count > keys) return false;
    if (!causal) return true;
    return key + key_count <= query + diagonal + 1 &&
           (window < 0 || key >= query + query_count - 1 + diagonal - window);
  }
};

__device__ __forceinline__ int LengthOf(const int* lengths, int b, int bound) {
  return lengths == nullptr ? bound : max(0, min(lengths[b], bound));
}

__device__ __forceinline__ Mask MaskOf(int kind, int window, const int* q_lengths,
                                       const int* kv_lengths, int b, int queries, int keys) {
  Mask mask;
  mask.queries = LengthOf(q_lengths, b, queries);
  mask.keys = LengthOf(kv_lengths, b, keys);
  mask.causal = kind != kMaskNone;
  mask.diagonal = kind == kMaskCausalBottomRight ? mask.keys - mask.queries : 0;
  mask.window = min(window, 1 << 30);
  return mask;
}

}  // namespace attention
