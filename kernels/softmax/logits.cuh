// What the logits of an op are. forward.cuh says what each member answers.
#pragma once

#include "vector.cuh"

namespace softmax {

// Logits are scale * x. The sign of the scale is taken off and given to x as it is loaded, so the
// largest x has the largest logit; exponents are one fused multiply-add each.
template <typename T, int VEC>
struct PlainLogits {
  static constexpr bool kReadOnce = true;

  struct Extra {
    template <bool kShifted>
    __device__ __forceinline__ void Load(const PlainLogits&, int, const Span&) {}
    __device__ __forceinline__ void Clear() {}
  };

  float scale2;    // |scale| * log2(e)
  unsigned signs;  // flips x where the scale is negative
  float top = 0;
  float subtract = 0;

  __device__ __forceinline__ explicit PlainLogits(float scale)
      : scale2(fabsf(scale) * kLog2e), signs(scale < 0 ? Element<T>::kSigns : 0u) {}

  __device__ __forceinline__ float Key(float x, const Extra&, int) const { return x; }
  __device__ __forceinline__ void SetMax(float max) {
    const bool none = max == -Infinity();
    subtract = none ? 0.0f : __fmul_rn(max, scale2) - Element<T>::kShift;
    top = none ? max : subtract;
  }
  __device__ __forceinline__ float Exp(float x, const Extra&, int) const {
    return Exp2(fmaf(x, scale2, -subtract));
  }
  __device__ __forceinline__ float Top() const { return top; }
  __device__ __forceinline__ static float Rescale(float from, float to) { return Exp2(from - to); }
  __device__ __forceinline__ static float Inverse(float, float sum) { return 1.0f / sum; }
};

// A dropped logit is -10000. Subtracting the maximum before the change of base keeps logits near
// -10000 exact.
template <typename T, int VEC>
struct MaskedLogits {
  static constexpr float kDropped = -10000.0f;
  static constexpr unsigned signs = 0;
  static constexpr bool kReadOnce =
      false;  // measured: with the mask in L1, x does better there too

  struct Extra {
    MaskBytes<VEC> bytes;
    template <bool kShifted>
    __device__ __forceinline__ void Load(const MaskedLogits& logits, int index, const Span& span) {
      if constexpr (kShifted) {
        bytes.LoadShifted(logits.mask, span.Start<VEC>(index), span.K);
      } else {
        bytes.Load(logits.mask, index);
      }
    }
    __device__ __forceinline__ void Clear() { bytes.Clear(); }
  };

  float scale;
  const unsigned char* mask = nullptr;  // of this row
  float top = 0;
  float subtract = 0;
  float dropped = 0;  // Exp of a dropped logit

  __device__ __forceinline__ explicit MaskedLogits(float scale) : scale(scale) {}

  __device__ __forceinline__ float Key(float x, const Extra& extra, int i) const {
    return extra.bytes.Dropped(i) ? kDropped : __fmul_rn(x, scale);
  }
  __device__ __forceinline__ void SetMax(float max) {
    top = max;
    subtract = max == -Infinity() ? 0.0f : max;
    dropped = Exp2(fmaf(kDropped - subtract, kLog2e, Element<T>::kShift));
  }
  __device__ __forceinline__ float Exp(float x, const Extra& extra, int i) const {
    const float kept = Exp2(fmaf(fmaf(x, scale, -subtract), kLog2e, Element<T>::kShift));
    return extra.bytes.Dropped(i) ? dropped : kept;
  }
  __device__ __forceinline__ float Top() const { return top; }
  __device__ __forceinline__ static float Rescale(float from, float to) {
    return Exp2((from - to) * kLog2e);
  }
  // A row whose largest logit is exactly that of a dropped one is zero, but a NaN in it stays.
  __device__ __forceinline__ static float Inverse(float top, float sum) {
    return top == kDropped && sum == sum ? 0.0f : 1.0f / sum;
  }
};

}  // namespace softmax
