// Host kernels of the quantize ops with an activation in front, and of its gradient: one source for
// x86-64-v2, v3 and v4. What is made of a row waits in a buffer of floats, which then are what is
// quantized.
#include "host_activation.h"
#include "kbundle/host_kernel.h"

namespace quantize {

template <typename E, typename Q>
void Activate(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax, float* scale_inv,
              const typename E::Memory* x, const float* scale, int64_t M, int64_t N, bool gated,
              int32_t function, float limit, float alpha, float offset) {
  Activating<E> source{x, N, gated, function, limit, alpha, offset};
  QuantizeParts<F32, Q>(
      begin, end, {q, q_t, amax, scale_inv, nullptr}, scale, M, N,
      [&](int64_t row, int64_t column, int64_t count) { return source.Row(row, column, count); });
}

// Of the matrix [M, planes * N].
template <typename E, typename Q>
void ActivationGradient(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax,
                        float* scale_inv, float* partial, bool dbias, const typename E::Memory* dy,
                        const typename E::Memory* x, const float* scale, int64_t M, int64_t N,
                        bool gated, int32_t function, float limit, float alpha, float offset) {
  Differentiating<E> source{dy, x, N, gated ? 2 : 1, function, limit, alpha, offset};
  QuantizeParts<F32, Q>(
      begin, end, {q, q_t, amax, scale_inv, dbias ? partial : nullptr}, scale, M, source.planes * N,
      [&](int64_t row, int64_t column, int64_t count) { return source.Row(row, column, count); });
}

}  // namespace quantize

KB_HOST_KERNEL_CODES(activation, quantize::Activate)
KB_HOST_KERNEL_CODES(activation_gradient, quantize::ActivationGradient)
KB_HOST_KERNEL_ELEMENTS(sum_parts, quantize::SumParts)
