// The loss of a row and its gradient, once the maximum m of the logits l, the sum s of exp(l - m),
// their plain sum and the label y's logit are known:
//
//   lse  = m + log s
//   loss = (1 - e) * (m - l[y]) + e * (m - mean l) + log s + z * lse^2
//   dl_j = g * ((1 + 2 z lse) * p_j - (1 - e) * [j = y] - e / V),   p_j = exp(l_j - m) / s
//
// with the label smoothing e, the weight z of lse^2 and the gradient g of the loss. log s is added
// to differences from the maximum, not to the maximum itself: a loss that is small beside large
// logits keeps its digits.
//
// An ignored row is not looked at: loss, lse and gradient are 0. A label that is no column, and not
// the one that is ignored, makes the loss and the gradient NaN and is never an address.
#pragma once

#include "team.cuh"

namespace loss {

// What a launch is given. logits and dlogits may be the same memory.
struct Call {
  void* dlogits;
  float* loss;
  float* lse;
  const void* logits;
  const void* labels;
  const float* given_lse;
  const float* dloss;   // of every row; null: what follows
  const float* dtotal;  // of the reduced loss; null: 1
  const float* share;   // that a row has in the reduced loss; null: 1
  float smoothing;
  float z_loss;
  int ignore;
  bool wide;  // labels are int64
  int64 V;
  int64 rows;
};

// A label that int has no room for becomes one that is no column, and not ignored either.
__device__ __forceinline__ int LabelAt(const void* labels, bool wide, int ignore, int64 row) {
  if (!wide) return static_cast<const int*>(labels)[row];
  const int64 label = static_cast<const int64*>(labels)[row];
  const int narrow = static_cast<int>(label);
  return narrow == label ? narrow : ignore == -1 ? -2 : -1;
}

// Of a row: one register, since it outlives the whole row.
class Label {
 public:
  __device__ __forceinline__ Label(const Call& call, int64 row) {
    if (row >= call.rows) return;
    column_ = LabelAt(call.labels, call.wide, call.ignore, row);
    if (column_ == call.ignore) {
      column_ = kIgnored;
    } else if (column_ < 0 || column_ >= call.V) {
      column_ = kWrong;
    }
  }

  __device__ __forceinline__ bool there() const { return column_ != kNoRow; }
  __device__ __forceinline__ bool ignored() const { return column_ == kIgnored; }
  __device__ __forceinline__ bool wrong() const { return column_ == kWrong; }
  __device__ __forceinline__ bool looked() const { return column_ >= kWrong; }
  __device__ __forceinline__ bool right() const { return column_ >= 0; }
  // Of one that is right; else no column.
  __device__ __forceinline__ int column() const { return column_; }

 private:
  static constexpr int kWrong = -1, kIgnored = -2, kNoRow = -3;

  int column_ = kNoRow;
};

// What is subtracted of logits before they are exponents. Of a row with +inf, or of nothing but
// -inf, nothing is: then sums are what the formulas say.
__device__ __forceinline__ float Shift(float max) { return fabsf(max) < Infinity() ? max : 0.0f; }

// Takes a sum of exp(l - from) to one of exp(l - to), from <= to.
__device__ __forceinline__ float Rescale(float from, float to) {
  return from == to ? 1.0f : Exp2((from - to) * kLog2e);
}

// A row's sums as a thread has seen them, and in the end as its team has.
struct Sums {
  float max = -Infinity();
  float exps = 0;    // of exp(l - Shift(max))
  float plain = 0;   // of l, where labels are smoothed
  float picked = 0;  // l[y]
};

// looked: the row is not ignored. Of a label that is wrong `picked` is NaN, and so is the loss.
__device__ __forceinline__ void StoreLoss(const Call& call, int64 row, bool looked,
                                          const Sums& sums, float log_sum) {
  if (row >= call.rows) return;
  float loss = 0, lse = 0;
  if (looked) {
    lse = sums.max + log_sum;
    loss = (1.0f - call.smoothing) * (sums.max - sums.picked) + log_sum;
    if (call.smoothing != 0.0f)
      loss += call.smoothing * (sums.max - sums.plain / static_cast<float>(call.V));
    if (call.z_loss != 0.0f) loss += call.z_loss * lse * lse;
  }
  call.loss[row] = loss;
  call.lse[row] = lse;
}

// What flows back into a row's loss.
__device__ __forceinline__ float GradientOfLoss(const Call& call, int64 row) {
  if (call.dloss != nullptr) return call.dloss[row];
  const float total = call.dtotal == nullptr ? 1.0f : *call.dtotal;
  return call.share == nullptr ? total : total * *call.share;
}

// dl_j = by * exp2((l_j - shift) * log2(e) - log2_sum) - every, and less `once` at the label.
struct Gradient {
  float shift = 0, log2_sum = 0, by = 0, every = 0, once = 0;

  __device__ __forceinline__ Gradient(const Call& call, int64 row, const Label& label, float lse,
                                      float lowest, float log2_of_sum) {
    if (!label.looked()) return;  // and nothing is read: 0 * exp(-inf) - 0
    shift = lowest;
    log2_sum = log2_of_sum;
    const float g = GradientOfLoss(call, row);
    by = call.z_loss == 0.0f ? g : g * (1.0f + 2.0f * call.z_loss * lse);
    every = g * call.smoothing / static_cast<float>(call.V);
    once = g * (1.0f - call.smoothing);
    if (label.wrong()) every = Infinity() - Infinity();
  }

  __device__ __forceinline__ float Of(float logit) const {
    return by * Exp2(__fmaf_rn(logit - shift, kLog2e, -log2_sum)) - every;
  }

  // Vectors of logits become their gradient, but for what belongs to the label.
  template <int kBatch, typename T, int VEC>
  __device__ __forceinline__ void Of(Vector<T, VEC> (&raw)[kBatch]) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      float v[VEC];
      raw[i].ToFloats(v);
#pragma unroll
      for (int j = 0; j < VEC; ++j) v[j] = Of(v[j]);
      raw[i].FromFloats(v);
    }
  }

  // The label's own element, by the thread that has stored its vector.
  template <typename T, int VEC>
  __device__ __forceinline__ void StoreLabel(const Call& call, const Row<T, VEC>& row,
                                             const Label& label, float picked) const {
    if (label.right())
      kbundle::device::StoreOne<T>(call.dlogits, row.Place(label.column()), Of(picked) - once);
  }
};

// The label's logit; NaN of a label that is wrong, 0 of a row that is not looked at.
template <typename T, int VEC>
__device__ __forceinline__ float Picked(const Call& call, const Row<T, VEC>& row,
                                        const Label& label) {
  if (label.wrong()) return Infinity() - Infinity();
  if (!label.right()) return 0.0f;
  const char* p =
      static_cast<const char*>(call.logits) + row.Place(label.column()) * Element<T>::kBytes;
  return Element<T>::Widen(Element<T>::kBytes == 4 ? LoadWord4(p) : LoadWord2(p));
}

}  // namespace loss
