// Scores on x86-64-v2, v3 and v4: exponentials, sigmoids, and a row's sum of them.
#pragma once

#include "kbundle/host_vector.h"

namespace router {

using namespace kbundle::host;

constexpr int64_t kMostExperts = 8192;
constexpr float kTiny = 1e-20f;  // is added to the sum that sigmoids are divided by

// e^x, relative error 4e-7; 0 below -174, infinity above 89.
inline Floats Exp(Floats x) {
  x = x < -174.0f ? Splat(-174.0f) : x > 174.0f ? Splat(174.0f) : x;
  const Floats rounded = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: an integer in the low bits
  const Floats n = rounded - 12582912.0f;
  const Floats rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  const Ints exponent = __builtin_convertvector(x == x ? n : Floats{}, Ints);
  const Ints half = exponent >> 1;
  const Floats first = (Floats)((half + 127) << 23);
  const Floats second = (Floats)((exponent - half + 127) << 23);
  return Exp2Fraction(rest * 1.44269504f) * first * second;
}

inline Floats Sigmoid(Floats x) { return 1.0f / (1.0f + Exp(-x)); }

inline Floats Only(Floats v, int64_t count, float fill) {
  return count >= kLanes ? v : LaneNumbers() < static_cast<int32_t>(count) ? v : Splat(fill);
}

inline Floats Max(Floats a, Floats b) { return a > b ? a : b; }  // a NaN in `a` loses

inline float MaxOf(Floats v) {
  float most = v[0];
  for (int i = 1; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
  return most;
}

inline float SumOf(Floats v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

inline int64_t Fewer(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr int64_t kStretch = 256;  // what is summed by itself, so that little is lost

// Scores of a whole row: softmax, or sigmoids divided by their sum.
struct RowSum {
  bool sigmoid;
  float most = 0;
  float share = 0;

  Floats Raw(Floats x) const { return sigmoid ? Sigmoid(x) : Exp(x - most); }
};

template <typename E>
inline RowSum SumRow(const typename E::Memory* x, int64_t count, bool sigmoid) {
  RowSum sum{sigmoid};
  if (!sigmoid) {
    Floats most = Splat(-Infinity());
    for (int64_t i = 0; i < count; i += kLanes)
      most = Max(Only(Load<E>(x + i, count - i), count - i, -Infinity()), most);
    sum.most = MaxOf(most);
  }
  float total = sigmoid ? kTiny : 0.0f;
  for (int64_t first = 0; first < count; first += kStretch) {
    const int64_t last = Fewer(first + kStretch, count);
    Floats part = {};
    for (int64_t i = first; i < last; i += kLanes)
      part += Only(sum.Raw(Load<E>(x + i, last - i)), last - i, 0.0f);
    total += SumOf(part);
  }
  sum.share = 1.0f / total;
  return sum;
}

// kLanes elements of a row, at places that `index` holds; `count` of them.
template <typename E>
inline Floats Gather(const typename E::Memory* row, const int32_t* index, int64_t count) {
  typename E::Memory found[kLanes] = {};
  for (int64_t i = 0; i < Fewer(count, kLanes); ++i) found[i] = row[index[i]];
  return E::Widen(LoadAny<typename E::Raw>(found));
}

}  // namespace router
