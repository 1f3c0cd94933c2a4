// FP8 memory as vectors of floats, and back: more element types for host_vector.h.
#pragma once

#include "kbundle/host_vector.h"

namespace kbundle {
namespace host {

typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

// Single bytes as words.
inline Words WidenBytes(Bytes v) {
#if KB_ISA_LEVEL >= 4
  return (Words)_mm512_maskz_cvtepu8_epi32(0xffff, (__m128i)v);
#elif KB_ISA_LEVEL == 3
  return (Words)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(__builtin_bit_cast(int64_t, v)));
#elif !defined(__x86_64__)
  return __builtin_convertvector(v, Words);
#else
  return (Words)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(__builtin_bit_cast(int32_t, v)));
#endif
}

// Of words below 2^8.
inline Bytes NarrowToBytes(Words v) {
#if KB_ISA_LEVEL >= 4
  return (Bytes)_mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)v);
#elif KB_ISA_LEVEL == 3
  const __m128i halves = (__m128i)NarrowToHalves(v);
  return __builtin_bit_cast(Bytes, _mm_cvtsi128_si64(_mm_packus_epi16(halves, halves)));
#else
  return __builtin_convertvector(v, Bytes);
#endif
}

// Rounds magnitudes (the bits of floats) to nearest even, with kMantissa bits behind the first and
// exponents from kLeast on; below that to multiples of the smallest subnormal. The result has the
// exponent kLeast as 1.
template <int kMantissa, int kLeast>
inline Words RoundMagnitude(Words magnitude) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr uint32_t kFirst = static_cast<uint32_t>(127 + kLeast) << 23;  // 2^kLeast
  // Adding it leaves the multiple of the smallest subnormal, rounded, in the low bits.
  const Words unit = SplatWord(static_cast<uint32_t>(127 + kLeast + kDropped) << 23);
  const Words subnormal = AsWords(AsFloats(magnitude) + AsFloats(unit)) - unit;
  const Words odd = (magnitude >> kDropped) & 1u;
  const Words rebased = magnitude - (kFirst - (1u << 23));
  const Words normal = (rebased + ((1u << (kDropped - 1)) - 1u) + odd) >> kDropped;
  return magnitude < kFirst ? subnormal : normal;
}

// NaN where the magnitude is 0x7f; no infinities. Exponents are rebased by integer arithmetic;
// subnormals, multiples of 2^-9, by a conversion.
struct E4M3 {
  using Memory = uint8_t;
  using Raw = Bytes;
  static constexpr bool kIsFloat = false;
  static Floats Widen(Raw v) {
    const Words w = WidenBytes(v);
    const Words magnitude = w & 0x7fu;
    const Words normal = (magnitude << 20) + (120u << 23);
    const Words subnormal =
        AsWords(__builtin_convertvector((Ints)magnitude, Floats) * Splat(0x1p-9f));
    const Words finite = magnitude < 8u ? subnormal : normal;
    const Words all = magnitude == 0x7fu ? SplatWord(0x7fc00000u) : finite;
    return AsFloats(all | ((w & 0x80u) << 24));
  }
  // Rounds to nearest even; what is larger becomes the largest, 448; NaN stays NaN.
  static Raw Narrow(Floats v) {
    const Words w = AsWords(v), magnitude = w & 0x7fffffffu, largest = AsWords(Splat(448.0f));
    const Words finite = RoundMagnitude<3, -6>(magnitude < largest ? magnitude : largest);
    const Words all = v == v ? finite : SplatWord(0x7fu);
    return NarrowToBytes(all | ((w >> 24) & 0x80u));
  }
};

// The upper half of an f16.
struct E5M2 {
  using Memory = uint8_t;
  using Raw = Bytes;
  static constexpr bool kIsFloat = false;
  static Floats Widen(Raw v) { return F16::Widen(__builtin_convertvector(v, Halves) << 8); }
  // Rounds to nearest even; what is larger, infinity too, becomes the largest, 57344; NaN stays.
  static Raw Narrow(Floats v) {
    const Words w = AsWords(v), magnitude = w & 0x7fffffffu, largest = AsWords(Splat(57344.0f));
    const Words finite = RoundMagnitude<2, -14>(magnitude < largest ? magnitude : largest);
    const Words all = v == v ? finite : SplatWord(0x7fu);
    return NarrowToBytes(all | ((w >> 24) & 0x80u));
  }
};

}  // namespace host
}  // namespace kbundle
