// Scores on x86-64-v2, v3 and v4: exponentials, sigmoids, and a row's sum of them.
#pragma once

#include "kbundle/host_sweep.h"

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

// A register's lanes joined in halves: they do not wait for one another, as they would in a row.
#if KB_ISA_LEVEL >= 4
inline float SumOf(Floats v) { return _mm512_reduce_add_ps((__m512)v); }
inline int32_t MaxOf(Ints v) { return _mm512_reduce_max_epi32((__m512i)v); }
#else
template <typename V, typename Join>
inline auto Joined(V v, Join join) {
  typedef decltype(v[0] + v[0]) Quarter __attribute__((vector_size(16)));
  Quarter part[kBytes / 16];
  __builtin_memcpy(part, &v, sizeof(v));
  const Quarter q = kBytes > 16 ? join(part[0], part[kBytes / 16 - 1]) : part[0];
  const Quarter turned = {q[2], q[3], q[0], q[1]};
  const Quarter pair = join(q, turned);
  const Quarter crossed = {pair[1], pair[0], pair[3], pair[2]};
  return join(pair, crossed)[0];
}

inline float SumOf(Floats v) {
  return Joined(v, [](auto a, auto b) { return a + b; });
}
inline int32_t MaxOf(Ints v) {
  return Joined(v, [](auto a, auto b) { return a > b ? a : b; });
}
#endif

inline int64_t Fewer(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr int64_t kStretch = 256;  // what is summed by itself, so that little is lost

// Scores of a whole row: softmax, or sigmoids divided by their sum.
struct RowSum {
  bool sigmoid;
  float most = 0;
  float share = 0;

  Floats Raw(Floats x) const { return sigmoid ? Sigmoid(x) : Exp(x - most); }
};

// raw: where what is summed is written, for who needs it again, or null; kLanes more than `count`.
// `room` elements may be read from x on, `count` at least: those of the rows behind this one are
// read rather than a few moved through memory, which waits for stores of other widths.
template <typename E>
inline RowSum SumRow(const typename E::Memory* x, int64_t count, int64_t room, bool sigmoid,
                     float* raw = nullptr) {
  RowSum sum{sigmoid};
  if (!sigmoid) {
    Floats most = Splat(-Infinity());
    for (int64_t i = 0; i < count; i += kLanes)
      most = Max(Only(Load<E>(x + i, room - i), count - i, -Infinity()), most);
    sum.most = LargestLane(most);
  }
  float total = sigmoid ? kTiny : 0.0f;
  for (int64_t first = 0; first < count; first += kStretch) {
    const int64_t last = Fewer(first + kStretch, count);
    Floats part = {};
    for (int64_t i = first; i < last; i += kLanes) {
      const Floats one = sum.Raw(Load<E>(x + i, room - i));
      if (raw != nullptr) StoreAny(raw + i, one);
      part += Only(one, last - i, 0.0f);
    }
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
