// FP8 numbers as codes of one byte: e4m3 and e5m2 from floats, and back; and the scales of blocks
// of them. For CUDA kernels.
//
// GPUs from compute capability 8.9 on have instructions for both; elsewhere the same bits come from
// integer arithmetic. What rounds, rounds to nearest even, subnormal numbers too; what is larger
// than the largest number becomes that one, infinities as well; NaN stays NaN.
#pragma once

#include "kbundle/device_element.h"

struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace kbundle {
namespace device {

// The bits of the magnitude of a float, rounded to kMantissa bits behind the first and exponents
// from kLeast on, below that to multiples of the smallest subnormal. The result has the exponent
// kLeast as 1.
template <int kMantissa, int kLeast>
__device__ __forceinline__ unsigned RoundMagnitude(unsigned magnitude) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr unsigned kFirst = static_cast<unsigned>(127 + kLeast) << 23;  // 2^kLeast
  if (magnitude < kFirst) {
    // Adding it leaves the multiple of the smallest subnormal, rounded, in the low bits.
    constexpr unsigned kUnit = static_cast<unsigned>(127 + kLeast + kDropped) << 23;
    return __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kUnit)) - kUnit;
  }
  const unsigned odd = (magnitude >> kDropped) & 1u;
  return (magnitude - (kFirst - (1u << 23)) + ((1u << (kDropped - 1)) - 1u) + odd) >> kDropped;
}

// kMost is the largest number, whose bits as a float are kMostBits.
template <int kMantissa, int kLeast, unsigned kMostBits>
__device__ __forceinline__ unsigned CodeOf(float f) {
  const unsigned word = __float_as_uint(f), magnitude = word & 0x7fffffffu;
  const unsigned bounded = magnitude < kMostBits ? magnitude : kMostBits;
  const unsigned finite = RoundMagnitude<kMantissa, kLeast>(bounded);
  return (magnitude > 0x7f800000u ? 0x7fu : finite) | ((word >> 24) & 0x80u);
}

// Two codes in the low half of a word, the first one lowest, and both as floats.
template <typename Q>
struct Fp8;

template <>
struct Fp8<__nv_fp8_e4m3> {
  static constexpr float kMost = 448.0f;
  static constexpr int kMostExponent = 8;
#if __CUDA_ARCH__ >= 890
  __device__ static __forceinline__ unsigned Pack(float low, float high) {
    unsigned short codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(codes) : "f"(low), "f"(high));
    return codes;
  }
  __device__ static __forceinline__ void Widen(unsigned codes, float& low, float& high) {
    unsigned halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(codes)));
    low = Element<__half>::Widen(halves & 0xffffu);
    high = Element<__half>::Widen(halves >> 16);
  }
#else
  __device__ static __forceinline__ unsigned Pack(float low, float high) {
    return CodeOf<3, -6, 0x43e00000u>(low) | CodeOf<3, -6, 0x43e00000u>(high) << 8;
  }
  __device__ static __forceinline__ float WidenOne(unsigned code) {
    const unsigned magnitude = code & 0x7fu;
    const float finite = __uint_as_float(magnitude << 20) * __uint_as_float(0x7b800000u);  // 2^120
    const unsigned word = magnitude == 0x7fu ? 0x7fc00000u : __float_as_uint(finite);
    return __uint_as_float(word | (code & 0x80u) << 24);
  }
  __device__ static __forceinline__ void Widen(unsigned codes, float& low, float& high) {
    low = WidenOne(codes & 0xffu);
    high = WidenOne((codes >> 8) & 0xffu);
  }
#endif
};

template <>
struct Fp8<__nv_fp8_e5m2> {
  static constexpr float kMost = 57344.0f;
  static constexpr int kMostExponent = 15;
#if __CUDA_ARCH__ >= 890
  __device__ static __forceinline__ unsigned Pack(float low, float high) {
    unsigned short codes;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(codes) : "f"(low), "f"(high));
    return codes;
  }
#else
  __device__ static __forceinline__ unsigned Pack(float low, float high) {
    return CodeOf<2, -14, 0x47600000u>(low) | CodeOf<2, -14, 0x47600000u>(high) << 8;
  }
#endif
  // An e5m2 is the upper half of an f16.
  __device__ static __forceinline__ void Widen(unsigned codes, float& low, float& high) {
    low = Element<__half>::Widen((codes & 0xffu) << 8);
    high = Element<__half>::Widen(codes & 0xff00u);
  }
};

// f.operator()<Q>() for the type that a launch is for. Both are in one code object: most of what an
// object holds beside its code would be there twice.
template <typename F>
__device__ __forceinline__ void OfType(bool e5m2, const F& f) {
  if (e5m2) {
    f.template operator()<__nv_fp8_e5m2>();
  } else {
    f.template operator()<__nv_fp8_e4m3>();
  }
}

// Magnitudes are compared as bits, so that NaN counts as the largest and no order matters.
template <int kCount>
__device__ __forceinline__ unsigned Largest(unsigned most, const float (&f)[kCount]) {
#if __CUDA_ARCH__ >= 800
  float found = __uint_as_float(most);  // one instruction each, to which NaN is the largest too
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm("{.reg .f32 m; abs.f32 m, %1; max.NaN.f32 %0, %0, m;}" : "+f"(found) : "f"(f[i]));
  return __float_as_uint(found);
#else
#pragma unroll
  for (int i = 0; i < kCount; ++i) most = max(most, __float_as_uint(f[i]) & 0x7fffffffu);
  return most;
#endif
}

// The largest of groups of kLanes lanes beside one another, for all of them.
template <int kLanes>
__device__ __forceinline__ unsigned LargestOfLanes(unsigned most) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
    most = max(most, __shfl_xor_sync(kAllLanes, most, lanes));
  return most;
}

// How a block's scale follows from its amax.
struct BlockScale {
  float epsilon;      // amax counts as this much at least
  bool power_of_two;  // scale_inv is rounded up to one

  // What codes, of which the largest is `highest`, are multiplied by again: 1 where amax is 0 or
  // not finite. Never below 2^-126, so that its reciprocal is finite.
  __device__ __forceinline__ float Inverse(unsigned most, float highest) const {
    constexpr unsigned kInfinite = 0x7f800000u;
    most = max(most, __float_as_uint(fmaxf(epsilon, 0.0f)));
    if (most == 0 || most >= kInfinite) return 1.0f;
    unsigned bits = __float_as_uint(__uint_as_float(most) / highest);
    if (power_of_two) bits = (bits + 0x7fffffu) & kInfinite;
    return fmaxf(__uint_as_float(bits), 0x1p-126f);
  }
};

}  // namespace device
}  // namespace kbundle
