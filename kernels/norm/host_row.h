// A row of a norm on the host: what it is read as, its sums and its moments.
//
// A row is read once for each sum and once for y, mostly out of L1 or L2. Sums are floats over a
// stretch of kStretch elements, and doubles over the stretches. What a row's squares may not do
// (overflow, vanish) and why sums are taken about a mean is said in forward.cuh, for GPUs.
#pragma once

#include "kbundle/host_sweep.h"

namespace norms {

using namespace kbundle::host;

constexpr int64_t kStretch = 1024;
constexpr int64_t kFew = 128;  // elements of which a first mean is taken

// kSums sums over a row: add(i, lanes, sums) adds a vector's values to sums[kSums].
template <int kSums, typename Add>
__attribute__((always_inline)) inline void SumRow(double (&total)[kSums], int64_t H, Add add) {
  for (double& one : total) one = 0;
  for (int64_t begin = 0; begin < H; begin += kStretch) {
    Floats sums[4][kSums] = {};
    Sweep(
        begin, begin + kStretch < H ? begin + kStretch : H,
        [&](int64_t i, Lanes lanes, int k)
            __attribute__((always_inline)) { add(i, lanes, sums[k]); });
    for (int s = 0; s < kSums; ++s)
      total[s] += Sum((sums[0][s] + sums[1][s]) + (sums[2][s] + sums[3][s]));
  }
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

// The mean of the squares about the shift (of an RMS norm about 0), less that of the offset.
template <bool kLayer, typename R>
__attribute__((noinline)) double MeanSquare(const R& row, int64_t H, Moments& m) {
  double total[kLayer ? 2 : 1];
  SumRow(
      total, H, [&](int64_t i, Lanes lanes, Floats * sums) __attribute__((always_inline)) {
        const Floats d = Only(m.Centered(row.At(i, lanes.count)), lanes);
        sums[0] += d * d;
        if constexpr (kLayer) sums[1] += d;
      });
  const double share = 1.0 / static_cast<double>(H);
  if constexpr (!kLayer) return total[0] * share;
  const double offset = total[kLayer ? 1 : 0] * share;
  m.offset = static_cast<float>(offset);
  const double variance = total[0] * share - offset * offset;
  return variance < 0 ? 0 : variance;
}

template <typename R>
__attribute__((noinline)) float MeanOfRow(const R& row, int64_t H) {
  const float share = 1.0f / static_cast<float>(H);
  double mean[1];
  SumRow(
      mean, H, [&](int64_t i, Lanes lanes, Floats * sums) __attribute__((always_inline)) {
        sums[0] += Only(row.At(i, lanes.count), lanes) * share;
      });
  return static_cast<float>(mean[0]);
}

// Of a layer norm squares are taken about the mean of the first few elements, which mostly lies so
// near to that of the row that their sum loses nothing. Else, also of an infinity or NaN, the row's
// own mean is taken first, for which it is read once more; of a row of equal numbers, or nearly so,
// the first of them.
template <bool kLayer, typename R>
inline Moments MomentsOf(const R& row, int64_t H, double epsilon) {
  constexpr double kTiny = 0x1p-100, kHuge = 0x1p127;
  Moments m;
  if constexpr (kLayer) {
    const int64_t few = H < kFew ? H : kFew;
    Floats sum = {};
    for (int64_t i = 0; i < few; i += kLanes) {
      const Place place(i, few);
      sum += Only(row.At(place.at, place.lanes.count), place.lanes);
    }
    m.first = m.shift = static_cast<float>(Sum(sum)) * (1.0f / static_cast<float>(few));
  }
  double mean = MeanSquare<kLayer>(row, H, m) + epsilon;
  if constexpr (kLayer) {
    const auto square_of_offset = [&m] {
      return static_cast<double>(m.offset) * static_cast<double>(m.offset);
    };
    if (!(mean >= kTiny && mean < kHuge && 16 * square_of_offset() <= mean - epsilon)) {
      m.first = m.shift = MeanOfRow(row, H);
      mean = MeanSquare<kLayer>(row, H, m) + epsilon;
    }
    // Elements that differ by less than what the mean was rounded by lie nearer to one of them.
    if (16 * square_of_offset() > mean - epsilon && mean < kHuge) {
      m.first = m.shift = row.At(0, 1)[0];
      mean = MeanSquare<kLayer>(row, H, m) + epsilon;
    }
  }
  if (!(mean >= kTiny && mean < kHuge)) {
    m.factor = mean < kTiny ? 0x1p100f : 0x1p-96f;
    // Numbers that are too large for the factor have no variance: they are equal.
    if (kLayer && mean < kTiny && __builtin_fabsf(m.first) >= 0x1p27f) m.factor = 1;
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
