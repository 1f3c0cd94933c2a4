// The gradient of the logits: of rows whose log-sum-exp is known, and together with the loss.
//
//   BackwardRows    from a log-sum-exp: nothing but one read and one write, in any pieces
//   FusedRows       loss and gradient in one read and one write: a row waits in shared memory,
//                   where each thread has its own vectors
//   FusedLongRows   the same of a row of any length, read twice: while few rows are on their way,
//                   the second time comes from L2
//
// The gradient may be written over the logits: a thread reads what it overwrites, and the label's
// logit is read before the team meets for the first time.
#pragma once

#include "forward.cuh"

namespace loss {

// kBatch vectors from `first` on, `step` apart, of a row of which the gradient is known.
template <int kBatch, typename T, int VEC>
__device__ __forceinline__ void StoreBatch(const Call& call, const Row<T, VEC>& row,
                                           const Gradient& gradient, int first, int step) {
  Vector<T, VEC> raw[kBatch];
  row.LoadBatch(raw, call.logits, first, step);
  gradient.Of(raw);
  row.StoreBatch(raw, call.dlogits, first, step);
}

// Piece `block` of `blocks`, each `kBatch` vectors for every thread of a team; a row has `pieces`.
template <typename T, int VEC, int kBatch, typename Team>
__device__ __forceinline__ void BackwardRows(const Call& call, Team team, int pieces, int64 block,
                                             int64 blocks) {
  const int64 groups = (call.rows + Team::kRows - 1) / Team::kRows;
  for (int64 piece = block; piece < groups * pieces; piece += blocks) {
    const int64 group = piece / pieces, at = group * Team::kRows + team.row();
    const int first = static_cast<int>(piece - group * pieces) * kBatch * team.size() + team.rank();
    const Label label(call, at);
    if (!label.there()) continue;
    const Row<T, VEC> row(at, call.rows, call.V, label.looked());
    const float lse = call.given_lse[at];
    const Gradient gradient(call, at, label, lse, lse, 0.0f);
    const int apart = row.VectorOf(label.column()) - first;
    const bool mine = apart >= 0 && apart < kBatch * team.size() && apart % team.size() == 0;
    const float picked = mine ? Picked(call, row, label) : 0.0f;
    StoreBatch<kBatch>(call, row, gradient, first, team.size());
    if (mine) gradient.StoreLabel(call, row, label, picked);
  }
}

// A row in shared memory: vector i of a thread is i * threads behind its first.
template <typename T, int VEC>
struct FromShared {
  const Row<T, VEC>& row;
  Words4* mine;
  int rank, step, threads;

  __device__ __forceinline__ void CopyAll(const void* logits) const {
    Words4* to = mine;
    const char* from = row.PlaceOf(logits, rank);
    for (int vector = rank; vector < row.seen; vector += step) {
      if (row.Whole(vector)) {
        CopyLater16(to, from);
      } else {
        Vector<T, VEC> v;
        row.Load(v, logits, vector);
        *to = {v.word[0], v.word[1], v.word[2], v.word[3]};
      }
      to += threads;
      from += int64{step} * sizeof(Words4);
    }
    WaitForCopies();
  }

  template <int kBatch>
  __device__ __forceinline__ void Load(Vector<T, VEC> (&v)[kBatch], int index) const {
    const Words4* at = mine + index * threads;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      v[i].FillWithLowest();
      if (rank + (index + i) * step >= row.seen) continue;
      const Words4 words = at[i * threads];
#pragma unroll
      for (int j = 0; j < 4; ++j) v[i].word[j] = words.word[j];
    }
  }
};

// Writes what the sums of the row give.
template <typename T, int VEC, typename Team, typename From>
__device__ __forceinline__ void FinishRow(const Call& call, int64 at, const Label& label,
                                          const Row<T, VEC>& row, Sums& sums, Team& team,
                                          const From& from) {
  Join(sums, team);
  const float log_sum = logf(sums.exps);
  if (team.rank() == 0) StoreLoss(call, at, row.seen > 0, sums, log_sum);
  if (!label.there()) return;
  const Gradient gradient(call, at, label, sums.max + log_sum, Shift(sums.max), log2f(sums.exps));
  constexpr int kBatch = 2;
  for (int index = 0; team.rank() + index * team.size() < row.vectors; index += kBatch) {
    Vector<T, VEC> raw[kBatch];
    from.Load(raw, index);
    gradient.Of(raw);
    row.StoreBatch(raw, call.dlogits, team.rank() + index * team.size(), team.size());
  }
  if (row.VectorOf(label.column()) % team.size() == team.rank())
    gradient.StoreLabel(call, row, label, sums.picked);
}

// `shared`: 16 bytes for each vector that the block has of its rows.
template <typename T, int VEC, typename Team>
__device__ __forceinline__ void FusedRows(const Call& call, Team team, Words4* shared, int threads,
                                          int block, int blocks) {
  const int64 first = block / team.blocks(), step = blocks / team.blocks();
  for (int64 base = first * Team::kRows; base < call.rows; base += step * Team::kRows) {
    const int64 at = base + team.row();
    const Label label(call, at);
    const Row<T, VEC> row(at, call.rows, call.V, label.looked());
    const FromShared<T, VEC> from{row, shared + threadIdx.x, team.rank(), team.size(), threads};
    from.CopyAll(call.logits);
    const float picked = team.rank() == 0 ? Picked(call, row, label) : 0.0f;
    Sums sums = SumsOf<2>(call, row, team, from);
    sums.picked = picked;
    FinishRow(call, at, label, row, sums, team, from);
  }
}

template <typename T, int VEC, int kBatch, typename Team>
__device__ __forceinline__ void FusedLongRows(const Call& call, Team team, int block, int blocks) {
  const int64 begin = block / team.blocks(), step = blocks / team.blocks();
  for (int64 at = begin; at < call.rows; at += step) {
    const Label label(call, at);
    const Row<T, VEC> row(at, call.rows, call.V, label.looked());
    const FromMemory<T, VEC> from{call.logits, row, team.rank(), team.size()};
    const float picked = team.rank() == 0 ? Picked(call, row, label) : 0.0f;
    Sums sums = SumsOf<kBatch>(call, row, team, from);
    sums.picked = picked;
    FinishRow(call, at, label, row, sums, team, from);
  }
}

}  // namespace loss
