// What the kernels of ragged attention are told besides Params, and what they make of it: the rows
// of one sequence. Params has no lengths then, its strides are from token to token and head to
// head, and its `queries` and `keys` are the most that a sequence may have: by these a bias lies,
// and dropout counts.
#pragma once

#include "params.cuh"
#include "ragged.cuh"

namespace attention {

struct Sequences {
  const int *q_offsets, *kv_offsets;
  const int *q_lengths, *kv_lengths;  // or null
  int q_total, kv_total;
};

struct SequenceRows {
  Rows q, kv;
  Mask mask;

  __device__ __forceinline__ SequenceRows(const Params& p, const Sequences& all, int sequence)
      : q(RowsOf(all.q_offsets, all.q_lengths, sequence, all.q_total, p.queries)),
        kv(RowsOf(all.kv_offsets, all.kv_lengths, sequence, all.kv_total, p.keys)),
        mask(MaskOf(p.mask, p.window, nullptr, nullptr, 0, q.count, kv.count)) {}

  // Of one head: rows of queries, as of q and dout, and of keys.
  __device__ __forceinline__ Source Queries(const unsigned short* tensor, const Strides& strides,
                                            int h, int columns) const {
    return RowsOfHead(tensor, q.first * strides.token, strides, h, q.count, columns);
  }
  __device__ __forceinline__ Source Keys(const unsigned short* tensor, const Strides& strides,
                                         int h, int columns) const {
    return RowsOfHead(tensor, kv.first * strides.token, strides, h, kv.count, columns);
  }
};

}  // namespace attention
