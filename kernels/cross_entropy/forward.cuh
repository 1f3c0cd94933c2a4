// Loss and log-sum-exp of rows, in one read: every thread keeps a maximum and the sum of
// exponentials below it, and moves the sum to a new maximum where a batch of vectors brings one.
#pragma once

#include "loss.cuh"

namespace loss {

template <typename T, int VEC>
__device__ __forceinline__ float MaxOf(const Vector<T, VEC>& raw, float max) {
  float v[VEC];
  raw.ToFloats(v);
#pragma unroll
  for (int j = 0; j < VEC; ++j) max = fmaxf(max, v[j]);
  return max;
}

// Adds a vector's exponentials, and where labels are smoothed its plain sum.
template <typename T, int VEC>
__device__ __forceinline__ void AddVector(Sums& sums, const Vector<T, VEC>& raw, const Call& call,
                                          const Row<T, VEC>& row, float shift, int vector) {
  float v[VEC];
  raw.ToFloats(v);
#pragma unroll
  for (int j = 0; j < VEC; ++j) sums.exps += Exp2((v[j] - shift) * kLog2e);
  if (call.smoothing == 0.0f) return;
  const bool whole = row.Whole(vector);
#pragma unroll
  for (int j = 0; j < VEC; ++j) sums.plain += whole || row.Has(vector, j) ? v[j] : 0.0f;
}

// The logits in device memory, for a thread that has every `step`th vector from `rank` on.
template <typename T, int VEC>
struct FromMemory {
  const void* logits;
  const Row<T, VEC>& row;
  int rank, step;

  __device__ __forceinline__ void Load(Vector<T, VEC>& v, int64 index) const {
    row.Load(v, logits, rank + index * step);
  }
};

// The sums of the vectors that the thread has: from.Load(v, i) for i = 0, 1, ..
template <int kBatch, typename T, int VEC, typename Team, typename From>
__device__ __forceinline__ Sums SumsOf(const Call& call, const Row<T, VEC>& row, const Team& team,
                                       const From& from) {
  Sums sums;
  for (int64 index = 0; team.rank() + index * team.size() < row.seen; index += kBatch) {
    Vector<T, VEC> raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) from.Load(raw[i], index + i);
    float top = sums.max;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) top = MaxOf(raw[i], top);
    sums.exps *= Rescale(sums.max, top);
    sums.max = top;
    const float shift = Shift(top);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64 vector = team.rank() + (index + i) * team.size();
      if (vector < row.seen) AddVector(sums, raw[i], call, row, shift, static_cast<int>(vector));
    }
  }
  return sums;
}

// Every thread's sums become those of the row.
template <typename Team>
__device__ __forceinline__ void Join(Sums& sums, Team& team) {
  float max[1] = {sums.max};
  team.template All<Max>(max);
  float all[3] = {sums.exps * Rescale(sums.max, max[0]), sums.plain, sums.picked};
  team.template All<Sum>(all);
  sums = {max[0], all[0], all[1], all[2]};
}

// The rows of block `block` of `blocks`.
template <typename T, int VEC, int kBatch, typename Team>
__device__ __forceinline__ void ForwardRows(const Call& call, Team team, int block, int blocks) {
  const int64 first = block / team.blocks(), step = blocks / team.blocks();
  for (int64 base = first * Team::kRows; base < call.rows; base += step * Team::kRows) {
    const int64 at = base + team.row();
    const Label label(call, at);
    const Row<T, VEC> row(at, call.rows, call.V, label.looked());
    const float picked = team.rank() == 0 ? Picked(call, row, label) : 0.0f;
    Sums sums = SumsOf<kBatch>(call, row, team,
                               FromMemory<T, VEC>{call.logits, row, team.rank(), team.size()});
    sums.picked = picked;
    Join(sums, team);
    if (team.rank() == 0) StoreLoss(call, at, row.seen > 0, sums, logf(sums.exps));
  }
}

}  // namespace loss
