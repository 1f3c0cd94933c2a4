// Ragged attention: sequences lie one after another in one tensor.
//
// Each sequence is a problem of its own, whose tensors begin at its first row. What those problems
// have by head (stats, delta) lies in the workspace: of sequence b from `first row * heads` on.
#pragma once

#include "host_backward.h"

namespace attention {

// Rows of a tensor that belong to one sequence.
struct Rows {
  int64_t first, count;

  // Inside the tensor, and no more than a sequence may have, whatever offsets and lengths say. With
  // lengths (null: none) rows may be left between a sequence and the next.
  static Rows Of(const int32_t* offsets, const int32_t* lengths, int64_t b, int64_t total,
                 int64_t bound) {
    const int64_t first = Larger(0, Smaller(offsets[b], total));
    const int64_t end = Larger(first, Smaller(offsets[b + 1], total));
    const int64_t most = Smaller(end - first, bound);
    return {first, lengths == nullptr ? most : Larger(0, Smaller(lengths[b], most))};
  }
  // Of the sequence that has this row; without rows where none has it.
  static Rows Around(const int32_t* offsets, const int32_t* lengths, int64_t sequences,
                     int64_t total, int64_t bound, int64_t row) {
    int64_t before = -1, after = sequences;  // offsets[before] <= row < offsets[after]
    while (after - before > 1) {
      const int64_t middle = (before + after) / 2;
      (offsets[middle] <= row ? before : after) = middle;
    }
    if (before < 0) return {0, 0};
    const Rows rows = Of(offsets, lengths, before, total, bound);
    return row >= rows.first && row < rows.first + rows.count ? rows : Rows{0, 0};
  }
};

template <typename T>
void ClearRow(T* rows, int64_t row, int64_t columns) {
  for (int64_t i = row * columns; i < (row + 1) * columns; ++i) rows[i] = T{};
}

// Where the sequences lie, as manifests fill it by name (SEQUENCES of ragged.toml).
struct Sequences {
  const int32_t *q_offsets, *kv_offsets, *q_lengths, *kv_lengths;
  int64_t count, q_total, kv_total;
};

struct Ragged {
  Sequences sequences;
  Problem each;  // of one sequence; queries and keys are the most that one has

  Rows Queries(int64_t b) const {
    return Rows::Of(sequences.q_offsets, sequences.q_lengths, b, sequences.q_total, each.queries);
  }
  Rows Keys(int64_t b) const {
    return Rows::Of(sequences.kv_offsets, sequences.kv_lengths, b, sequences.kv_total, each.keys);
  }
  Problem Of(int64_t b, const Rows& queries, const Rows& keys) const {
    Problem p = each;
    p.queries = queries.count;
    p.keys = keys.count;
    p.first_batch = b;
    return p;
  }
  template <typename E>
  Given<E> Shifted(Given<E> given, const Rows& queries, const Rows& keys) const {
    given.q += queries.first * each.heads * each.depth;
    given.dout += queries.first * each.heads * each.value_depth;
    given.stats += queries.first * each.heads;
    given.delta += queries.first * each.heads;
    given.k += keys.first * each.kv_heads * each.depth;
    given.v += keys.first * each.kv_heads * each.value_depth;
    return given;
  }
};

// After the forward pass: stats by row, and what belongs to no sequence.
template <typename E>
void RaggedForwardRows(int64_t begin, int64_t end, typename E::Memory* o, float* stats,
                       const float* by_head, const int32_t* offsets, const int32_t* lengths,
                       int64_t sequences, int64_t TQ, int64_t SQ, int64_t H, int64_t DV) {
  for (int64_t row = begin; row < end; ++row) {
    const Rows rows = Rows::Around(offsets, lengths, sequences, TQ, SQ, row);
    if (rows.count == 0) ClearRow(o, row, H * DV);
    const float* from = by_head + rows.first * H + row - rows.first;
    for (int64_t h = 0; stats != nullptr && h < H; ++h)
      stats[row * H + h] = rows.count == 0 ? -Infinity() : from[h * rows.count];
  }
}

// Before the gradients: stats and delta by head, and dq of what belongs to no sequence.
template <typename E>
void RaggedBackwardRows(int64_t begin, int64_t end, typename E::Memory* dq, float* by_head,
                        float* delta, const typename E::Memory* o, const typename E::Memory* dout,
                        const float* stats, const int32_t* offsets, const int32_t* lengths,
                        int64_t sequences, int64_t TQ, int64_t SQ, int64_t H, int64_t D,
                        int64_t DV) {
  for (int64_t row = begin; row < end; ++row) {
    const Rows rows = Rows::Around(offsets, lengths, sequences, TQ, SQ, row);
    if (rows.count == 0) ClearRow(dq, row, H * D);
    const int64_t to = rows.first * H + row - rows.first;
    for (int64_t h = 0; rows.count != 0 && h < H; ++h) {
      const int64_t from = (row * H + h) * DV;
      Floats sum = Floats{};
      for (int64_t d = 0; d < DV; d += kLanes)
        sum += Load<E>(o + from + d, DV - d) * Load<E>(dout + from + d, DV - d);
      float total = 0;
      for (int i = 0; i < kLanes; ++i) total += sum[i];
      delta[to + h * rows.count] = total;
      by_head[to + h * rows.count] = stats[row * H + h];
    }
  }
}

template <typename E>
void RaggedKeyRows(int64_t begin, int64_t end, typename E::Memory* dk, typename E::Memory* dv,
                   const int32_t* offsets, const int32_t* lengths, int64_t sequences, int64_t TKV,
                   int64_t SKV, int64_t HKV, int64_t D, int64_t DV) {
  for (int64_t row = begin; row < end; ++row) {
    if (Rows::Around(offsets, lengths, sequences, TKV, SKV, row).count != 0) continue;
    ClearRow(dk, row, HKV * D);
    ClearRow(dv, row, HKV * DV);
  }
}

}  // namespace attention
