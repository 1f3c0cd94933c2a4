// A row of a norm on the host: what it is read as, its sums and its moments.
//
// A row is read once for each sum and once for y, mostly out of L1 or L2. Sums are floats over a
// stretch of kStretch elements, and doubles over the stretches. What a row's squares may not do
// (overflow, vanish) and why sums are taken about a mean is said in forward.cuh, for GPUs.
#pragma once

#include "kbundle/host_vector.h"

namespace norms {

using namespace kbundle::host;

constexpr int64_t kStretch = 1024;

inline double Sum(Floats v) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(v[i]);
  return sum;
}

// f(i, count, k) for every vector of elements begin..end - 1; k < 4 is another one for neighbours,
// which may sum each for itself.
template <typename F>
__attribute__((always_inline)) inline void Sweep(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    f(i, int64_t{kLanes}, 0);
    f(i + kLanes, int64_t{kLanes}, 1);
    f(i + 2 * kLanes, int64_t{kLanes}, 2);
    f(i + 3 * kLanes, int64_t{kLanes}, 3);
  }
  for (; i < end; i += kLanes) f(i, end - i < kLanes ? end - i : int64_t{kLanes}, 0);
}

// kSums sums over a row: add(i, count, sums) adds a vector's values to sums[kSums].
template <int kSums, typename Add>
__attribute__((always_inline)) inline void SumRow(double (&total)[kSums], int64_t H, Add add) {
  for (double& one : total) one = 0;
  for (int64_t begin = 0; begin < H; begin += kStretch) {
    Floats sums[4][kSums] = {};
    Sweep(begin, begin + kStretch < H ? begin + kStretch : H,
          [&](int64_t i, int64_t count, int k) { add(i, count, sums[k]); });
    for (int s = 0; s < kSums; ++s)
      total[s] += Sum((sums[0][s] + sums[1][s]) + (sums[2][s] + sums[3][s]));
  }
}

inline Floats Only(Floats v, int64_t count) {
  return count >= kLanes ? v : LaneNumbers() < static_cast<int32_t>(count) ? v : Splat(0.0f);
}

// gamma or beta: values of E, or of float where `wide`.
template <typename E>
struct Weights {
  const void* values;
  bool wide;
  float more;  // is added to each

  Floats At(int64_t i, int64_t count) const {
    if (E::kIsFloat || wide) return Load<F32>(static_cast<const float*>(values) + i, count) + more;
    return Load<E>(static_cast<const typename E::Memory*>(values) + i, count) + more;
  }
};

template <typename E, bool kResidual>
struct Row {
  const typename E::Memory* x;
  const typename E::Memory* residual;

  Floats At(int64_t i, int64_t count) const {
    const Floats v = Load<E>(x + i, count);
    return kResidual ? v + Load<E>(residual + i, count) : v;
  }
};

// y = (x * factor - shift - offset) * inverse * gamma + beta.
struct Moments {
  float factor = 1, first = 0, shift = 0, offset = 0;
  double inverse = 0;

  Floats Centered(Floats x) const { return x * factor - shift; }
};

// The mean of the squares about the first mean (of an RMS norm about 0), less the offset's.
template <bool kLayer, typename R>
inline double MeanSquare(const R& row, int64_t H, Moments& m) {
  double total[kLayer ? 2 : 1];
  SumRow(total, H, [&](int64_t i, int64_t count, Floats* sums) {
    const Floats d = Only(m.Centered(row.At(i, count)), count);
    sums[0] += d * d;
    if constexpr (kLayer) sums[1] += d;
  });
  if constexpr (!kLayer) return total[0] / static_cast<double>(H);
  const double offset = total[kLayer ? 1 : 0] / static_cast<double>(H);
  m.offset = static_cast<float>(offset);
  const double variance = total[0] / static_cast<double>(H) - offset * offset;
  return variance < 0 ? 0 : variance;
}

template <bool kLayer, typename R>
inline Moments MomentsOf(const R& row, int64_t H, double epsilon) {
  constexpr double kTiny = 0x1p-100, kHuge = 0x1p127;
  Moments m;
  if constexpr (kLayer) {
    const float share = 1.0f / static_cast<float>(H);
    double first[1];
    SumRow(first, H,
           [&](int64_t i, int64_t count, Floats* sums) { sums[0] += row.At(i, count) * share; });
    m.first = m.shift = static_cast<float>(first[0]);
  }
  double mean = MeanSquare<kLayer>(row, H, m) + epsilon;
  if (!(mean >= kTiny && mean < kHuge)) {
    m.factor = mean < kTiny ? 0x1p100f : 0x1p-96f;
    m.shift = m.first * m.factor;
    const double factor = static_cast<double>(m.factor);
    mean = MeanSquare<kLayer>(row, H, m) + epsilon * factor * factor;
  }
  m.inverse = 1.0 / __builtin_sqrt(mean);
  return m;
}

// Of a row with an infinity the rest is NaN.
inline float MeanOf(const Moments& m) {
  const double mean =
      static_cast<double>(m.first) + static_cast<double>(m.offset) / static_cast<double>(m.factor);
  return mean == mean ? static_cast<float>(mean) : m.first;
}

}  // namespace norms
