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

__device__ __forceinline__ int64 LabelAt(const void* labels, bool wide, int64 row) {
  return wide ? static_cast<const int64*>(labels)[row] : static_cast<const int*>(labels)[row];
}

struct Label {
  int column = 0;
  bool there = false;    // the row exists
  bool ignored = false;  // and is not looked at
  bool wrong = false;    // is no column

  __device__ __forceinline__ Label(const Call& call, int64 row) {
    if (row >= call.rows) return;
    const int64 label = LabelAt(call.labels, call.wide, row);
    there = true;
    ignored = label == call.ignore;
    wrong = !ignored && (label < 0 || label >= call.V);
    if (!wrong && !ignored) column = static_cast<int>(label);
  }

  __device__ __forceinline__ bool Looked() const { return there && !ignored; }
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

__device__ __forceinline__ void StoreLoss(const Call& call, int64 row, const Label& label,
                                          const Sums& sums, float log_sum) {
  if (!label.there) return;
  float loss = 0, lse = 0;
  if (!label.ignored) {
    lse = sums.max + log_sum;
    loss = (1.0f - call.smoothing) * (sums.max - sums.picked) + log_sum;
    if (call.smoothing != 0.0f)
      loss += call.smoothing * (sums.max - sums.plain / static_cast<float>(call.V));
    if (call.z_loss != 0.0f) loss += call.z_loss * lse * lse;
    if (label.wrong) loss = Infinity() - Infinity();
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
  float shift, log2_sum;
  float by = 0, every = 0, once = 0;

  __device__ __forceinline__ Gradient(const Call& call, int64 row, const Label& label, float lse,
                                      float shift, float log2_sum)
      : shift(shift), log2_sum(log2_sum) {
    if (!label.Looked()) return;
    const float g = GradientOfLoss(call, row);
    by = call.z_loss == 0.0f ? g : g * (1.0f + 2.0f * call.z_loss * lse);
    every = g * call.smoothing / static_cast<float>(call.V);
    once = g * (1.0f - call.smoothing);
    if (label.wrong) every = Infinity() - Infinity();
  }

  __device__ __forceinline__ float Of(float logit) const {
    return by * Exp2(__fmaf_rn(logit - shift, kLog2e, -log2_sum)) - every;
  }

  // The gradient of a vector of which these are the logits, but for what belongs to the label.
  template <typename T, int VEC>
  __device__ __forceinline__ void Store(const Call& call, const Row<T, VEC>& row,
                                        const Label& label, const Vector<T, VEC>& logits,
                                        int64 vector) const {
    float v[VEC];
    logits.ToFloats(v);
#pragma unroll
    for (int j = 0; j < VEC; ++j) v[j] = label.ignored ? 0.0f : Of(v[j]);
    Vector<T, VEC> out;
    out.FromFloats(v);
    row.Store(out, call.dlogits, vector);
  }

  // The label's own element, by the thread that has stored its vector.
  template <typename T, int VEC>
  __device__ __forceinline__ void StoreLabel(const Call& call, const Row<T, VEC>& row,
                                             const Label& label, float picked) const {
    if (label.Looked() && !label.wrong)
      kbundle::device::StoreOne<T>(call.dlogits, row.Place(label.column), Of(picked) - once);
  }
};

// The label's logit; 0 where there is none.
template <typename T, int VEC>
__device__ __forceinline__ float Picked(const Call& call, const Row<T, VEC>& row,
                                        const Label& label) {
  if (!label.Looked() || label.wrong) return 0.0f;
  const char* p =
      static_cast<const char*>(call.logits) + row.Place(label.column) * Element<T>::kBytes;
  return Element<T>::Widen(Element<T>::kBytes == 4 ? LoadWord4(p) : LoadWord2(p));
}

}  // namespace loss
