// Loss and log-sum-exp of rows, in one read: every thread keeps a maximum and the sum of
// exponentials below it, and moves the sum to a new maximum where a batch of vectors brings one.
#pragma once

#include "loss.cuh"

namespace loss {

// The largest of a batch and `max`. Two elements of 16 bits are compared at once.
template <int kBatch, typename T, int VEC>
__device__ __forceinline__ float MaxOf(const Vector<T, VEC> (&raw)[kBatch], float max) {
  if constexpr (VEC == 1 || Element<T>::kBytes == 4) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float v[VEC];
      raw[i].ToFloats(v);
#pragma unroll
      for (int j = 0; j < VEC; ++j) max = fmaxf(max, v[j]);
    }
    return max;
  } else {
    unsigned most = raw[0].word[0];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int j = 0; j < Vector<T, VEC>::kWords; ++j) most = MaxOfPairs<T>(most, raw[i].word[j]);
    }
    return fmaxf(max, fmaxf(Element<T>::Low(most), Element<T>::Low(most >> 16)));
  }
}

// The sum of a batch's exponentials.
template <int kBatch, typename T, int VEC>
__device__ __forceinline__ float ExpsOf(const Vector<T, VEC> (&raw)[kBatch], float shift) {
  float sum[2] = {};
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    float v[VEC];
    raw[i].ToFloats(v);
#pragma unroll
    for (int j = 0; j < VEC; ++j) sum[j % 2] += Exp2((v[j] - shift) * kLog2e);
  }
  return sum[0] + sum[1];
}

// The plain sum of vectors `first`, `first` + step, ..
template <int kBatch, typename T, int VEC>
__device__ __forceinline__ float PlainOf(const Vector<T, VEC> (&raw)[kBatch],
                                         const Row<T, VEC>& row, int first, int step) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    float v[VEC];
    raw[i].ToFloats(v);
#pragma unroll
    for (int j = 0; j < VEC; ++j) sum += row.Has(first + i * step, j) ? v[j] : 0.0f;
  }
  return sum;
}

// The logits in device memory, for a thread that has every `step`th vector from `rank` on.
template <typename T, int VEC>
struct FromMemory {
  const void* logits;
  const Row<T, VEC>& row;
  int rank, step;

  template <int kBatch>
  __device__ __forceinline__ void Load(Vector<T, VEC> (&v)[kBatch], int index) const {
    row.LoadBatch(v, logits, rank + index * step, step);
  }
};

// The sums of the vectors that the thread has, a batch of which is on its way while the one before
// is added.
template <int kBatch, typename T, int VEC, typename Team, typename From>
__device__ __forceinline__ Sums SumsOf(const Call& call, const Row<T, VEC>& row, const Team& team,
                                       const From& from) {
  Sums sums;
  Vector<T, VEC> raw[kBatch], next[kBatch];
  for (int index = 0;; index += kBatch) {
    const int first = team.rank() + index * team.size();
    if (first < row.seen) from.Load(next, index);
    if (index > 0) {
      const float top = MaxOf(raw, sums.max), shift = Shift(top);
      sums.exps = sums.exps * Rescale(sums.max, top) + ExpsOf(raw, shift);
      sums.max = top;
      if (call.smoothing != 0.0f)
        sums.plain += PlainOf(raw, row, first - kBatch * team.size(), team.size());
    }
    if (first >= row.seen) return sums;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) raw[i] = next[i];
  }
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
