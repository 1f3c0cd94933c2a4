// Float vectors of one register's width for each x86-64 level, and for Arm as for level 2; and how
// f32, f16 and bf16 memory becomes such vectors. For host kernels, beside host_kernel.h.
//
// Only GCC/Clang vector types, plus the F16C conversions. Memory is aligned to its elements only.
// Flags that break rounding (-ffast-math) must not be used with this file.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <stdint.h>

namespace kbundle {
namespace host {

constexpr int kBytes = KB_ISA_LEVEL >= 4 ? 64 : KB_ISA_LEVEL == 3 ? 32 : 16;
constexpr int kLanes = kBytes / 4;

typedef float Floats __attribute__((vector_size(kBytes)));
typedef int32_t Ints __attribute__((vector_size(kBytes)));
typedef uint32_t Words __attribute__((vector_size(kBytes)));
typedef uint16_t Halves __attribute__((vector_size(kBytes / 2)));

template <typename V>
inline V LoadAny(const void* p) {
  typedef V Unaligned __attribute__((aligned(1), may_alias));
  return *static_cast<const Unaligned*>(p);
}

template <typename V>
inline void StoreAny(void* p, V v) {
  typedef V Unaligned __attribute__((aligned(1), may_alias));
  *static_cast<Unaligned*>(p) = v;
}

inline Floats Splat(float f) { return f - Floats{}; }
inline Words SplatWord(uint32_t w) { return w - Words{}; }
inline Floats AsFloats(Words w) { return (Floats)w; }
inline Words AsWords(Floats f) { return (Words)f; }
inline float Infinity() { return __builtin_inff(); }

// (GCC takes conversions of vectors of integers apart, in four instructions and more.)
inline Words WidenHalves(Halves v) {
#if KB_ISA_LEVEL >= 4
  return (Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)v);
#elif KB_ISA_LEVEL == 3
  return (Words)_mm256_cvtepu16_epi32((__m128i)v);
#elif !defined(__x86_64__)
  return __builtin_convertvector(v, Words);
#else
  return (Words)_mm_cvtepu16_epi32(_mm_cvtsi64_si128(__builtin_bit_cast(int64_t, v)));
#endif
}

// Of words below 2^16.
inline Halves NarrowToHalves(Words v) {
#if KB_ISA_LEVEL >= 4
  return (Halves)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v);
#elif KB_ISA_LEVEL == 3
  const __m256i all = (__m256i)v;
  return (Halves)_mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
#else
  return __builtin_convertvector(v, Halves);
#endif
}

// Lane i holds i.
inline Ints LaneNumbers() {
  int32_t number[kLanes];
  for (int i = 0; i < kLanes; ++i) number[i] = i;
  return LoadAny<Ints>(number);
}

// Fewer elements than a register holds, in pieces of constant size.
template <typename Memory>
inline void CopySome(Memory* to, const Memory* from, int64_t count) {
#pragma GCC unroll 8
  for (int width = kBytes / static_cast<int>(sizeof(Memory)) / 2; width > 0; width /= 2) {
    if ((count & width) == 0) continue;
    __builtin_memcpy(to, from, width * sizeof(Memory));
    to += width;
    from += width;
  }
}

// 2^f for f within [-0.5, 0.5]: minimax, relative error 1.5e-7.
inline Floats Exp2Fraction(Floats f) {
  Floats p = Splat(1.3276431984e-3f);
  p = p * f + 9.6755339432e-3f;
  p = p * f + 5.5507133175e-2f;
  p = p * f + 2.4022119865e-1f;
  p = p * f + 6.9314696709e-1f;
  return p * f + 1.0f;
}

// An element type: its memory, a vector of that memory (Raw), and the conversions to and from
// floats.
struct F32 {
  using Memory = float;
  using Raw = Floats;
  static constexpr bool kIsFloat = true;
  static Floats Widen(Raw v) { return v; }
  static Raw Narrow(Floats v) { return v; }
};

struct BF16 {
  using Memory = uint16_t;
  using Raw = Halves;
  static constexpr bool kIsFloat = false;
  static Floats Widen(Raw v) { return AsFloats(WidenHalves(v) << 16); }
  // Rounds to nearest even; NaN stays NaN.
  static Raw Narrow(Floats v) {
    const Words w = AsWords(v);
    const Words rounded = (w + 0x7fffu + ((w >> 16) & 1u)) >> 16;
    return NarrowToHalves(v == v ? rounded : SplatWord(0x7fc0u));
  }
};

struct F16 {
  using Memory = uint16_t;
  using Raw = Halves;
  static constexpr bool kIsFloat = false;
#if KB_ISA_LEVEL >= 4
  static constexpr __mmask16 kAll = 0xffff;
  static Floats Widen(Raw v) { return (Floats)_mm512_maskz_cvtph_ps(kAll, (__m256i)v); }
  static Raw Narrow(Floats v) {
    return (Raw)_mm512_maskz_cvtps_ph(kAll, (__m512)v,
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
#elif KB_ISA_LEVEL == 3
  static Floats Widen(Raw v) { return (Floats)_mm256_cvtph_ps((__m128i)v); }
  static Raw Narrow(Floats v) { return (Raw)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }
#else
  // Exponents are rebased by integer arithmetic, subnormals by a float subtraction: of normal
  // numbers, since the caller's thread may flush subnormal ones.
  static Floats Widen(Raw v) {
    const Words h = WidenHalves(v);
    const Words magnitude = (h & 0x7fffu) << 13;
    const Words exponent = magnitude & (0x7c00u << 13);
    const Words special = magnitude + ((255u - 31u) << 23);
    const Words normal = magnitude + ((127u - 15u) << 23);
    const Words subnormal =
        AsWords(AsFloats(magnitude + (113u << 23)) - AsFloats(SplatWord(113u << 23)));
    const Words finite = exponent == 0u ? subnormal : normal;
    const Words w = exponent == (0x7c00u << 13) ? special : finite;
    return AsFloats(w | ((h & 0x8000u) << 16));
  }
  static Raw Narrow(Floats v) {
    const Words w = AsWords(v);
    const Words magnitude = w & 0x7fffffffu;
    // Adding 0.5 leaves the multiple of 2^-24, rounded, in the low bits.
    const Words subnormal = AsWords(AsFloats(magnitude) + Splat(0.5f)) - AsWords(Splat(0.5f));
    const Words normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    Words h = magnitude < (113u << 23) ? subnormal : normal;
    h = magnitude >= (143u << 23) ? SplatWord(0x7c00u) : h;
    h = magnitude > (255u << 23) ? SplatWord(0x7e00u) : h;
    return NarrowToHalves(h | ((w >> 16) & 0x8000u));
  }
#endif
};

// `count` elements, kLanes at most; the others are zero, or are not written.
template <typename E>
inline Floats Load(const typename E::Memory* p, int64_t count) {
  if (count >= kLanes) return E::Widen(LoadAny<typename E::Raw>(p));
  typename E::Memory buffer[kLanes] = {};
  if (count > 0) CopySome(buffer, p, count);
  return E::Widen(LoadAny<typename E::Raw>(buffer));
}

template <typename E>
inline void Store(typename E::Memory* p, Floats v, int64_t count) {
  if (count >= kLanes) return StoreAny(p, E::Narrow(v));
  typename E::Memory buffer[kLanes];
  StoreAny(buffer, E::Narrow(v));
  if (count > 0) CopySome(p, buffer, count);
}

}  // namespace host
}  // namespace kbundle
