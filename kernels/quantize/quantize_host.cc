// Host kernels of the quantize ops of a whole tensor: one source for x86-64-v2, v3 and v4.
#include "host_parts.h"
#include "kbundle/host_kernel.h"

namespace quantize {

template <typename E>
void Amax(int64_t begin, int64_t end, float* amax, const typename E::Memory* x) {
  Largest largest;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) largest.Add(E::Widen(LoadAny<typename E::Raw>(x + i)));
  if (i < end) largest.Add(Load<E>(x + i, end - i));
  largest.Keep(amax);
}

template <typename E, typename Q>
void Cast(int64_t begin, int64_t end, uint8_t* q, float* amax, float* scale_inv,
          const typename E::Memory* x, const float* scale, int64_t count) {
  const float by = ScaleOf<Q>(scale, amax);
  if (begin == 0) *scale_inv = 1.0f / by;
  Largest largest;
  QuantizeRow<E, Q>(q + begin, x + begin, Smaller(end, count) - begin, by,
                    [&largest](int64_t, Floats f) { largest.Add(f); });
  if (scale) largest.Keep(amax);
}

template <typename E, typename Q>
void CastTranspose(int64_t begin, int64_t end, uint8_t* q, uint8_t* q_t, float* amax,
                   float* scale_inv, float* partial, bool dbias, const typename E::Memory* x,
                   const float* scale, int64_t M, int64_t N) {
  QuantizeParts<E, Q>(begin, end, {q, q_t, amax, scale_inv, dbias ? partial : nullptr}, scale, M, N,
                      [=](int64_t row, int64_t column, int64_t) { return x + row * N + column; });
}

template <typename Q, typename E>
void Dequantize(int64_t begin, int64_t end, typename E::Memory* x, const uint8_t* q,
                const float* scale_inv) {
  const float by = *scale_inv;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    StoreAny(x + i, E::Narrow(Q::Widen(LoadAny<typename Q::Raw>(q + i)) * by));
  if (i < end) Store<E>(x + i, Load<Q>(q + i, end - i) * by, end - i);
}

// state.cuh draws what happens to a history.
void UpdateScale(int64_t begin, int64_t end, float* new_history, float* new_scale, float* scale_inv,
                 const float* history, const float* amax, const float* scale, int64_t length,
                 float most, int32_t margin, bool newest_alone) {
  const float shift = __builtin_bit_cast(float, static_cast<uint32_t>(127 - margin) << 23);
  for (int64_t tensor = begin; tensor < end; ++tensor) {
    const float* from = history + tensor * length;
    float* to = new_history + tensor * length;
    const float now = amax[tensor];
    uint32_t largest = __builtin_bit_cast(uint32_t, now) & 0x7fffffffu;
    for (int64_t i = 1; i < length; ++i) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, from[i]) & 0x7fffffffu;
      if (!newest_alone && bits > largest) largest = bits;
      if (i > 1) to[i - 1] = from[i];
    }
    to[length - 1] = now;
    to[0] = 0.0f;
    float next = scale[tensor];
    if (largest != 0 && largest < kInfinityBits) {
      next = most / __builtin_bit_cast(float, largest) * shift;
      next = next > kHighestScale ? kHighestScale : next;
    }
    new_scale[tensor] = next;
    scale_inv[tensor] = 1.0f / next;
  }
}

}  // namespace quantize

using kbundle::host::BF16;
using kbundle::host::E4M3;
using kbundle::host::E5M2;
using kbundle::host::F16;
using kbundle::host::F32;

KB_HOST_KERNEL_ELEMENTS(amax, quantize::Amax)
KB_HOST_KERNEL_CODES(cast, quantize::Cast)
KB_HOST_KERNEL_CODES(cast_transpose, quantize::CastTranspose)
KB_HOST_KERNEL_ELEMENTS(sum_parts, quantize::SumParts)
KB_HOST_KERNEL(dequantize_e4m3_f32, quantize::Dequantize<E4M3, F32>);
KB_HOST_KERNEL(dequantize_e4m3_f16, quantize::Dequantize<E4M3, F16>);
KB_HOST_KERNEL(dequantize_e4m3_bf16, quantize::Dequantize<E4M3, BF16>);
KB_HOST_KERNEL(dequantize_e5m2_f32, quantize::Dequantize<E5M2, F32>);
KB_HOST_KERNEL(dequantize_e5m2_f16, quantize::Dequantize<E5M2, F16>);
KB_HOST_KERNEL(dequantize_e5m2_bf16, quantize::Dequantize<E5M2, BF16>);
KB_HOST_KERNEL(update_scale, quantize::UpdateScale);
