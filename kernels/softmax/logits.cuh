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
    __device__ __forceinline__ void Drop(Vector<T, VEC>&) const {}
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
  __device__ __forceinline__ bool Holds() const { return true; }
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
    __device__ __forceinline__ void Drop(Vector<T, VEC>&) const {}
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
  __device__ __forceinline__ bool Holds() const { return true; }
  __device__ __forceinline__ static float Rescale(float from, float to) {
    return Exp2((from - to) * kLog2e);
  }
  // A row whose largest logit is exactly that of a dropped one is zero, but a NaN in it stays.
  __device__ __forceinline__ static float Inverse(float top, float sum) {
    return top == kDropped && sum == sum ? 0.0f : 1.0f / sum;
  }
};

// Masked logits of a row whose largest kept one is well above -10000, which is nearly every row.
// There the exponential of a dropped logit is 0, as if x were -inf, so dropped x are overwritten
// before anything is computed: two instructions an element instead of eight. Holds() says, once the
// maximum is known, whether the row is such a row; MaskedLogits takes the others. With a scale of
// zero, or one so extreme that the product with -inf or the maximum is not what it should be, none
// is.
template <typename T, int VEC>
struct KeptLogits : PlainLogits<T, VEC> {
  using Plain = PlainLogits<T, VEC>;
  static constexpr bool kReadOnce = false;            // as above
  static constexpr float kFloor = -9800.0f * kLog2e;  // exp(-10000 + 9800) is 0 in every type

  struct Extra {
    MaskBytes<VEC> bytes;
    template <bool kShifted>
    __device__ __forceinline__ void Load(const KeptLogits& logits, int index, const Span& span) {
      if constexpr (kShifted) {
        bytes.LoadShifted(logits.mask, span.Start<VEC>(index), span.K);
      } else {
        bytes.Load(logits.mask, index);
      }
    }
    __device__ __forceinline__ void Clear() { bytes.Clear(); }
    __device__ __forceinline__ void Drop(Vector<T, VEC>& x) const { bytes.Drop(x); }
  };

  const unsigned char* mask = nullptr;  // of this row
  float floor;

  __device__ __forceinline__ explicit KeptLogits(float scale)
      : Plain(scale), floor(fabsf(scale) > 1e-30f && fabsf(scale) < 1e30f ? kFloor : Infinity()) {}

  __device__ __forceinline__ float Key(float x, const Extra&, int) const { return x; }
  __device__ __forceinline__ float Exp(float x, const Extra&, int) const {
    return Plain::Exp(x, {}, 0);
  }
  __device__ __forceinline__ bool Holds() const { return this->top > floor; }
};

}  // namespace softmax
