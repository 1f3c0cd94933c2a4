// Rows of any length by whole vectors, and what becomes of their lanes. For host kernels, beside
// host_vector.h.
#pragma once

#include "kbundle/host_vector.h"

namespace kbundle {
namespace host {

// Lanes joined in halves, which do not wait for one another as they would in a row.
inline double Sum(Floats v) {
#if KB_ISA_LEVEL >= 4
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1));
  return _mm512_reduce_add_pd(low + high);
#elif KB_ISA_LEVEL == 3
  const __m256d sum = _mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v)) +
                      _mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
#else
  const auto at = [&](int i) { return static_cast<double>(v[i]); };
  return (at(0) + at(2)) + (at(1) + at(3));
#endif
}

// An element by itself.
template <typename E>
inline float One(const typename E::Memory* p) {
  typename E::Raw raw = {};
  raw[0] = *p;
  return E::Widen(raw)[0];
}

// No lane is NaN.
inline float LargestLane(Floats v) {
#if KB_ISA_LEVEL >= 4
  return _mm512_reduce_max_ps((__m512)v);
#elif KB_ISA_LEVEL == 3
  const __m128 all =
      _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  const __m128 two = _mm_max_ps(all, _mm_movehl_ps(all, all));
  return two[0] > two[1] ? two[0] : two[1];
#else
  const float even = v[0] > v[2] ? v[0] : v[2], odd = v[1] > v[3] ? v[1] : v[3];
  return even > odd ? even : odd;
#endif
}

// Lanes of a vector that are of interest: from `done` on, up to `count`.
struct Lanes {
  int64_t count = kLanes, done = 0;
};

// Of a row, whose last vector is seldom full. It is read and written whole all the same, from where
// it ends at the row's end: what it shares with the vector before is `done`. Moving a few elements
// through memory waits for stores of other widths, some 15 cycles for each tensor. Only a row that
// is shorter than a vector has no other way.
struct Place {
  int64_t at;
  Lanes lanes;

  Place(int64_t i, int64_t end) : at(i) {
    const int64_t over = i + kLanes - end;
    if (over <= 0) return;
    if (end < kLanes) {
      lanes.count = end;
    } else {
      at -= over;
      lanes.done = over;
    }
  }
};

// f(i, lanes, k) for every vector of elements begin..end - 1 of a row; k < 4 is another one for
// neighbours, which may sum each for itself.
template <typename F>
__attribute__((always_inline)) inline void Sweep(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    f(i, Lanes{}, 0);
    f(i + kLanes, Lanes{}, 1);
    f(i + 2 * kLanes, Lanes{}, 2);
    f(i + 3 * kLanes, Lanes{}, 3);
  }
  for (; i < end; i += kLanes) {
    const Place place(i, end);
    f(place.at, place.lanes, 0);
  }
}

// Those lanes; `rest` in the others.
inline Floats Only(Floats v, Lanes lanes, float rest = 0.0f) {
  if (lanes.count >= kLanes && lanes.done == 0) return v;
#if KB_ISA_LEVEL >= 4
  const uint32_t those = (1u << lanes.count) - (1u << lanes.done);
  return (Floats)_mm512_mask_mov_ps((__m512)Splat(rest), static_cast<__mmask16>(those), (__m512)v);
#elif KB_ISA_LEVEL == 3
  const Ints numbers = {0, 1, 2, 3, 4, 5, 6, 7};
#else
  const Ints numbers = {0, 1, 2, 3};
#endif
#if KB_ISA_LEVEL < 4
  const auto done = static_cast<int32_t>(lanes.done), count = static_cast<int32_t>(lanes.count);
  return (numbers >= done) & (numbers < count) ? v : Splat(rest);
#endif
}

}  // namespace host
}  // namespace kbundle
