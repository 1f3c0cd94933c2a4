// Forward softmax of rows: y = exp(l - max l) / sum exp(l - max l) over the logits l of a row.
//
// Resident kernels (warp, block, cluster) read a row once and keep it in registers; long kernels
// read it twice and take any length. Both ask a `Logits` what a logit is:
//
//   Extra     what belongs to the elements of a vector: Load, Clear, and Drop, which overwrites x
//             before anything is computed of it
//   Key       what the maximum is taken of
//   SetMax    prepares Exp for a maximum; -inf means that no logit was above it, and then every Exp
//             is 0 (or NaN)
//   Holds     whether all this is true of a row with that maximum; resident kernels ask
//   Exp       exp(logit - max)
//   Top       the maximum as it travels between threads, and Rescale(from, to), which moves a sum
//             to another maximum
//   Inverse   1 / sum, unless the rules of the op say otherwise
//
// A NaN logit never wins the maximum and always reaches the sum, hence the whole row. A row of -inf
// gives 0 * (1 / 0), which is NaN too, and so does +inf through inf - inf: what jax.nn.softmax
// gives.
#pragma once

#include "logits.cuh"
#include "team.cuh"

namespace softmax {

// The factors that turn Exp of one block into y: y = Exp * inverse * rescale. Two, since their
// product may underflow.
struct Normalizer {
  float inverse, rescale;
};

template <typename Team, typename Logits>
__device__ __forceinline__ Normalizer Normalize(Team& team, const Logits& logits, float sum) {
  sum = team.Sum(sum);
  if constexpr (Team::kBlocks == 1) {
    return {Logits::Inverse(logits.Top(), sum), 1.0f};
  } else {
    Pair part[Team::kBlocks];  // top, sum
    team.Exchange({logits.Top(), sum}, part);
    float top = part[0].hi;
#pragma unroll
    for (int i = 1; i < Team::kBlocks; ++i) top = fmaxf(top, part[i].hi);
    float total = 0;
#pragma unroll
    for (int i = 0; i < Team::kBlocks; ++i) total += part[i].lo * Logits::Rescale(part[i].hi, top);
    const float rescale = logits.Top() == top ? 1.0f : Logits::Rescale(logits.Top(), top);
    return {Logits::Inverse(top, total), rescale};
  }
}

// A vector of x as floats with what the op knows about each of them. The modes of all row functions
// are compile time: kShifted, vectors may stick out of the row; kCausal, span.length may be less
// than span.K.
template <bool kShifted, bool kCausal, int VEC, typename Logits>
struct LogitVector {
  static constexpr bool kPartial = VEC > 1 && (kShifted || kCausal);

  float value[VEC];
  typename Logits::Extra extra;

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int j = 0; j < VEC; ++j) value[j] = 0;
    extra.Clear();
  }

  __device__ __forceinline__ float Max(const Logits& logits, int start, const Span& span) const {
    float max = -Infinity();
    if (kPartial && span.Cuts<kShifted, VEC>(start)) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        if (span.Counts<kShifted>(start, j)) max = fmaxf(max, logits.Key(value[j], extra, j));
      }
    } else {
#pragma unroll
      for (int j = 0; j < VEC; ++j) max = fmaxf(max, logits.Key(value[j], extra, j));
    }
    return max;
  }

  // Replaces the values by their exponentials and returns the sum of these. Slots that do not count
  // become 0.
  __device__ __forceinline__ float Exponentiate(const Logits& logits, int start, const Span& span) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) value[j] = logits.Exp(value[j], extra, j);
    if (kPartial && span.Cuts<kShifted, VEC>(start)) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) value[j] = span.Counts<kShifted>(start, j) ? value[j] : 0.0f;
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VEC; ++j) sum += value[j];
    return sum;
  }

  // y of the vector. A slot above the diagonal is 0 even where 0 * inverse would be NaN.
  template <typename T>
  __device__ __forceinline__ Vector<T, VEC> Result(const Normalizer& by, int start,
                                                   const Span& span) const {
    float y[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float scaled = value[j] * by.inverse * by.rescale;
      y[j] = !(kCausal && VEC > 1) || j < span.length - start ? scaled : 0.0f;
    }
    Vector<T, VEC> out;
    out.FromFloats(y);
    return out;
  }
};

// One row in the registers of a team. All loads are issued before the first is used. False, with
// nothing written, where the logits do not hold for it.
template <bool kShifted, bool kCausal, int VEC, int N, typename T, typename Team, typename Logits>
__device__ __forceinline__ bool ForwardRow(T* y, const T* x, const Span& span, Team& team,
                                           Logits logits) {
  Vector<T, VEC> raw[N];
  LogitVector<kShifted, kCausal, VEC, Logits> v[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int index = team.rank() + i * Team::kSize;
    raw[i].Fill(0);  // set what stays unused too: registers are assigned better
    v[i].Clear();
    if (span.Start<VEC>(index) >= span.length) continue;
    LoadVector<kShifted, Logits::kReadOnce>(raw[i], x, index, span);
    v[i].extra.template Load<kShifted>(logits, index, span);
  }

  float max = -Infinity();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int start = span.Start<VEC>(team.rank() + i * Team::kSize);
    if (start >= span.length) continue;
    raw[i].FlipSigns(logits.signs);
    v[i].extra.Drop(raw[i]);
    raw[i].ToFloats(v[i].value);
    max = fmaxf(max, v[i].Max(logits, start, span));
  }
  logits.SetMax(team.Max(max));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int start = span.Start<VEC>(team.rank() + i * Team::kSize);
    if (start < span.length) sum += v[i].Exponentiate(logits, start, span);
  }
  const Normalizer by = Normalize(team, logits, sum);
  if (!logits.Holds()) return false;  // not before: the rows of a warp exchange their sums together

#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int index = team.rank() + i * Team::kSize;
    const int start = span.Start<VEC>(index);
    if (start >= span.K) continue;
    Vector<T, VEC> out;
    out.Fill(0);
    if (!kCausal || start < span.length) out = v[i].template Result<T>(by, start, span);
    StoreVector<kShifted>(out, y, index, span);
  }
  return true;
}

// Loads kUnroll vectors of x and what belongs to them, as far as there are any that count.
template <bool kShifted, typename Team, typename T, int VEC, int kUnroll, typename V,
          typename Logits>
__device__ __forceinline__ void LoadBatch(Vector<T, VEC> (&raw)[kUnroll], V (&v)[kUnroll],
                                          const T* x, int64 first, int live, const Span& span,
                                          const Logits& logits) {
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    raw[i].Fill(0);
    v[i].Clear();
    if (first + i * Team::kSize >= live) continue;
    const int index = static_cast<int>(first + i * Team::kSize);
    LoadVector<kShifted, Logits::kReadOnce>(raw[i], x, index, span);
    v[i].extra.template Load<kShifted>(logits, index, span);
  }
}

// The same in two passes over a row of any length, by a block: an online maximum and sum, then the
// quotient. The second pass finds all but very long rows in L2.
template <bool kShifted, bool kCausal, int VEC, int kUnroll, typename T, typename Team,
          typename Logits>
__device__ __forceinline__ void ForwardLongRow(T* y, const T* x, const Span& span, Team& team,
                                               Logits logits) {
  const int live = span.Vectors<VEC>(span.length);
  const int vectors = span.Vectors<VEC>(span.K);
  Logits mine = logits;
  mine.SetMax(-Infinity());
  float max = -Infinity();
  float sum = 0;
  for (int64 first = team.rank(); first < live; first += int64{Team::kSize} * kUnroll) {
    Vector<T, VEC> raw[kUnroll];
    LogitVector<kShifted, kCausal, VEC, Logits> v[kUnroll];
    LoadBatch<kShifted, Team>(raw, v, x, first, live, span, logits);
    float batch = max;
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * Team::kSize >= live) continue;
      raw[i].FlipSigns(logits.signs);
      raw[i].ToFloats(v[i].value);
      batch =
          fmaxf(batch,
                v[i].Max(logits, span.Start<VEC>(static_cast<int>(first + i * Team::kSize)), span));
    }
    if (batch > max) {
      const float from = mine.Top();
      mine.SetMax(batch);
      sum *= Logits::Rescale(from, mine.Top());
      max = batch;
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * Team::kSize >= live) continue;
      sum +=
          v[i].Exponentiate(mine, span.Start<VEC>(static_cast<int>(first + i * Team::kSize)), span);
    }
  }
  logits.SetMax(team.Max(max));
  if (mine.Top() != logits.Top()) sum *= Logits::Rescale(mine.Top(), logits.Top());
  const Normalizer by = Normalize(team, logits, sum);

  for (int64 first = team.rank(); first < vectors; first += int64{Team::kSize} * kUnroll) {
    Vector<T, VEC> raw[kUnroll];
    LogitVector<kShifted, kCausal, VEC, Logits> v[kUnroll];
    LoadBatch<kShifted, Team>(raw, v, x, first, live, span, logits);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * Team::kSize >= vectors) continue;
      const int index = static_cast<int>(first + i * Team::kSize);
      const int start = span.Start<VEC>(index);
      Vector<T, VEC> out;
      out.Fill(0);
      if (!kCausal || index < live) {
        raw[i].FlipSigns(logits.signs);
        raw[i].ToFloats(v[i].value);
        v[i].Exponentiate(logits, start, span);
        out = v[i].template Result<T>(by, start, span);
      }
      StoreVector<kShifted>(out, y, index, span);
    }
  }
}

}  // namespace softmax
