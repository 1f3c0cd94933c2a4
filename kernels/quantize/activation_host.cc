// Host kernels of the quantize ops with an activation in front, and of its gradient: one source for
// x86-64-v2, v3 and v4.
#include "host_parts.h"
#include "kbundle/host_kernel.h"
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

// Row by row into a buffer of floats, which then are what is quantized.
template <typename E, typename Q>
void Activate(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax, float* scale_inv,
              const typename E::Memory* x, const float* scale, int64_t M, int64_t N, bool gated,
              int32_t function, float limit, float alpha, float offset) {
  float made[kColumns], gates[kColumns];
  const auto row = [&](int64_t r, int64_t column, int64_t count) -> const float* {
    const typename E::Memory* from = x + (gated ? 2 * r : r) * N + column;
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
  };
  QuantizeParts<F32, Q>(begin, end, {q, q_t, amax, scale_inv, nullptr}, scale, M, N, row);
}

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

// The gradient [M, planes, N] of dy [M, N] and x [M, planes, N], some of one plane's row at a time.
template <typename E>
struct Differentiating {
  const typename E::Memory *dy, *x;
  int64_t N, planes;
  int32_t function;
  float limit, alpha, offset;
  float of_x[kColumns + kLanes], gates[kColumns + kLanes];

  void Row(float* dz, int64_t row, int64_t plane, int64_t column, int64_t count) {
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

// Of the matrix [M, planes * N]; a row of a part may be of two planes.
template <typename E, typename Q>
void ActivationGradient(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax,
                        float* scale_inv, float* partial, bool dbias, const typename E::Memory* dy,
                        const typename E::Memory* x, const float* scale, int64_t M, int64_t N,
                        bool gated, int32_t function, float limit, float alpha, float offset) {
  Differentiating<E> source{dy, x, N, gated ? 2 : 1, function, limit, alpha, offset, {}, {}};
  float made[kColumns + kLanes];
  const auto row = [&](int64_t r, int64_t column, int64_t count) -> const float* {
    for (int64_t done = 0; done < count;) {
      const int64_t plane = (column + done) / N, first = (column + done) % N;
      const int64_t some = Smaller(count - done, N - first);
      source.Row(made + done, r, plane, first, some);
      done += some;
    }
    return made;
  };
  QuantizeParts<F32, Q>(begin, end, {q, q_t, amax, scale_inv, dbias ? partial : nullptr}, scale, M,
                        source.planes * N, row);
}

}  // namespace quantize

using kbundle::host::BF16;
using kbundle::host::E4M3;
using kbundle::host::E5M2;
using kbundle::host::F16;
using kbundle::host::F32;

KB_HOST_KERNEL(activation_f32_e4m3, quantize::Activate<F32, E4M3>);
KB_HOST_KERNEL(activation_f16_e4m3, quantize::Activate<F16, E4M3>);
KB_HOST_KERNEL(activation_bf16_e4m3, quantize::Activate<BF16, E4M3>);
KB_HOST_KERNEL(activation_f32_e5m2, quantize::Activate<F32, E5M2>);
KB_HOST_KERNEL(activation_f16_e5m2, quantize::Activate<F16, E5M2>);
KB_HOST_KERNEL(activation_bf16_e5m2, quantize::Activate<BF16, E5M2>);
KB_HOST_KERNEL(activation_gradient_f32_e4m3, quantize::ActivationGradient<F32, E4M3>);
KB_HOST_KERNEL(activation_gradient_f16_e4m3, quantize::ActivationGradient<F16, E4M3>);
KB_HOST_KERNEL(activation_gradient_bf16_e4m3, quantize::ActivationGradient<BF16, E4M3>);
KB_HOST_KERNEL(activation_gradient_f32_e5m2, quantize::ActivationGradient<F32, E5M2>);
KB_HOST_KERNEL(activation_gradient_f16_e5m2, quantize::ActivationGradient<F16, E5M2>);
KB_HOST_KERNEL(activation_gradient_bf16_e5m2, quantize::ActivationGradient<BF16, E5M2>);
KB_HOST_KERNEL(sum_parts_f32, quantize::SumParts<F32>);
KB_HOST_KERNEL(sum_parts_f16, quantize::SumParts<F16>);
KB_HOST_KERNEL(sum_parts_bf16, quantize::SumParts<BF16>);
