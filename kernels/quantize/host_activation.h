// Activations and gradients through them, for host kernels, a part of a row at a time.
#pragma once

#include "host_parts.h"
#include "kbundle/score_math.h"

namespace quantize {

enum Function { kGelu, kSilu, kRelu, kSquaredRelu, kClampedSilu };

inline float Clamped(float g, float limit) {
  const float above = g < -limit ? -limit : g;
  return above > limit ? limit : above;
}

// activation.cuh says what they are.
inline float Activated(int32_t function, float limit, float alpha, float x) {
  namespace score = kbundle::score;
  if (function == kGelu) return x * score::Sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
  if (function == kSilu) return x * score::Sigmoid(x);
  if (function == kClampedSilu) {
    const float m = x > limit ? limit : x;
    return m * score::Sigmoid(alpha * m);
  }
  const float positive = x < 0 ? 0 : x;
  return function == kRelu ? positive : positive * positive;
}

template <typename E>
inline void WidenRow(float* to, const typename E::Memory* from, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) StoreAny(to + i, Load<E>(from + i, count - i));
}

// Calls each(function) with a function that the compiler knows, so that its loop has no branches.
template <typename Each>
inline void OfFunction(int32_t function, const Each& each) {
  if (function == kGelu) each(kGelu);
  if (function == kSilu) each(kSilu);
  if (function == kRelu) each(kRelu);
  if (function == kSquaredRelu) each(kSquaredRelu);
  if (function == kClampedSilu) each(kClampedSilu);
}

// What an activation makes of x [M, N] or, gated, [M, 2, N], a part of a row at a time.
template <typename E>
struct Activating {
  const typename E::Memory* x;
  int64_t N;
  bool gated;
  int32_t function;
  float limit, alpha, offset;
  Unset<kColumns> made, gates;

  const float* Row(int64_t row, int64_t column, int64_t count) {
    const typename E::Memory* from = x + (gated ? 2 * row : row) * N + column;
    WidenRow<E>(made, from, count);
    OfFunction(function, [&](int32_t known) {
      for (int64_t i = 0; i < count; ++i) made[i] = Activated(known, limit, alpha, made[i]);
    });
    if (!gated) return made;
    WidenRow<E>(gates, from + N, count);
    for (int64_t i = 0; i < count; ++i) {
      const float clamped = Clamped(gates[i], limit) + offset;
      made[i] *= function == kClampedSilu ? clamped : gates[i];
    }
    return made;
  }
};

// gradient.cuh says what they are.
struct Tangent {
  float y, slope;
};

inline Tangent TangentOfSigmoid(float x, float s, float speed) {
  const float growth = s - s * s;
  return {x * s, growth == 0.0f ? s : s + x * growth * speed};
}

inline Tangent TangentAt(int32_t function, float limit, float alpha, float x) {
  namespace score = kbundle::score;
  if (function == kGelu) {
    const float s = score::Sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
    return TangentOfSigmoid(x, s, 1.5957691216f + 0.2140644488f * x * x);
  }
  if (function == kSilu) return TangentOfSigmoid(x, score::Sigmoid(x), 1.0f);
  if (function == kClampedSilu) {
    const float m = x > limit ? limit : x;
    const Tangent at = TangentOfSigmoid(m, score::Sigmoid(alpha * m), alpha);
    return {at.y, x > limit ? 0.0f : at.slope};
  }
  const float positive = x < 0 ? 0 : x;
  if (function == kRelu) return {positive, x > 0 ? 1.0f : 0.0f};
  return {positive * positive, 2.0f * positive};
}

// The gradient [M, planes, N] of dy [M, N] and x [M, planes, N], a part of a row at a time.
template <typename E>
struct Differentiating {
  const typename E::Memory *dy, *x;
  int64_t N, planes;
  int32_t function;
  float limit, alpha, offset;
  Unset<kColumns + kLanes> made, of_x, gates;

  // Of a row of planes * N columns: they may be of two planes.
  const float* Row(int64_t row, int64_t column, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t plane = (column + done) / N, first = (column + done) % N;
      const int64_t some = Smaller(count - done, N - first);
      PartOf(made + done, row, plane, first, some);
      done += some;
    }
    return made;
  }

  void PartOf(float* dz, int64_t row, int64_t plane, int64_t column, int64_t count) {
    const typename E::Memory* from = x + row * planes * N + column;
    WidenRow<E>(dz, dy + row * N + column, count);
    WidenRow<E>(of_x, from, count);
    OfFunction(function, [&](int32_t known) {
      for (int64_t i = 0; i < count; ++i) {
        const Tangent at = TangentAt(known, limit, alpha, of_x[i]);
        dz[i] *= plane == 0 ? at.slope : at.y;
      }
    });
    if (planes == 1 || (plane == 1 && function != kClampedSilu)) return;
    WidenRow<E>(gates, from + N, count);
    for (int64_t i = 0; i < count; ++i) {
      const float g = gates[i], gate = function == kClampedSilu ? Clamped(g, limit) + offset : g;
      dz[i] *= plane == 0 ? gate : g < -limit || g > limit ? 0.0f : 1.0f;
    }
  }
};

}  // namespace quantize
