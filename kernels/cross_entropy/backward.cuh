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
                                           const Label& label, const Gradient& gradient,
                                           int64 first, int step) {
  Vector<T, VEC> raw[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) row.Load(raw[i], call.logits, first + int64{i} * step);
#pragma unroll
  for (int i = 0; i < kBatch; ++i)
    gradient.Store(call, row, label, raw[i], first + int64{i} * step);
}

// Piece `block` of `blocks`, each `kBatch` vectors for every thread of a team; a row has `pieces`.
template <typename T, int VEC, int kBatch, typename Team>
__device__ __forceinline__ void BackwardRows(const Call& call, Team team, int pieces, int64 block,
                                             int64 blocks) {
  const int64 groups = (call.rows + Team::kRows - 1) / Team::kRows;
  for (int64 piece = block; piece < groups * pieces; piece += blocks) {
    const int64 group = piece / pieces, at = group * Team::kRows + team.row();
    const int64 first = (piece - group * pieces) * kBatch * team.size() + team.rank();
    const Label label(call, at);
    if (!label.there()) continue;
    const Row<T, VEC> row(at, call.rows, call.V, label.looked());
    const float lse = call.given_lse[at];
    const Gradient gradient(call, at, label, lse, lse, 0.0f);
    const int64 apart = row.VectorOf(label.column()) - first;
    const bool mine = apart >= 0 && apart < int64{kBatch} * team.size() && apart % team.size() == 0;
    const float picked = mine ? Picked(call, row, label) : 0.0f;
    StoreBatch<kBatch>(call, row, label, gradient, first, team.size());
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
    for (int index = 0, vector = rank; vector < row.seen; ++index, vector += step) {
      const char* place = row.PlaceOfWhole(logits, vector);
      if (place != nullptr) {
        CopyLater16(mine + index * threads, place);
        continue;
      }
      Vector<T, VEC> v;
      row.Load(v, logits, vector);
      mine[index * threads] = {v.word[0], v.word[1], v.word[2], v.word[3]};
    }
    WaitForCopies();
  }

  __device__ __forceinline__ void Load(Vector<T, VEC>& v, int64 index) const {
    v.FillWithLowest();
    if (rank + index * step >= row.seen) return;
    const Words4 words = mine[index * threads];
#pragma unroll
    for (int i = 0; i < 4; ++i) v.word[i] = words.word[i];
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
  for (int64 index = 0; team.rank() + index * team.size() < row.vectors; index += kBatch) {
    Vector<T, VEC> raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) from.Load(raw[i], index + i);
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      gradient.Store(call, row, label, raw[i], team.rank() + (index + i) * team.size());
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
