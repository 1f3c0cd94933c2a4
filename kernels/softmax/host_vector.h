// Float vectors of one register's width for each x86-64 level, and how f32, f16 and bf16 memory
// becomes such vectors.
//
// Only GCC/Clang vector types, plus intrinsics for what the compiler makes of them lane by lane:
// the F16C conversions, widening, masked memory. Memory is aligned to its elements
// only. Flags that break rounding (-ffast-math) must not be used with this file.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace softmax {

constexpr int kBytes = KB_ISA_LEVEL >= 4 ? 64 : KB_ISA_LEVEL == 3 ? 32 : 16;
constexpr int kLanes = kBytes / 4;

typedef float Floats __attribute__((vector_size(kBytes)));
typedef int32_t Ints __attribute__((vector_size(kBytes)));
typedef uint32_t Words __attribute__((vector_size(kBytes)));
typedef uint16_t Halves __attribute__((vector_size(kBytes / 2)));
typedef double Doubles __attribute__((vector_size(kBytes)));
typedef float HalfFloats __attribute__((vector_size(kBytes / 2)));

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

// Lane i holds i.
inline Ints LaneNumbers() {
  int32_t number[kLanes];
  for (int i = 0; i < kLanes; ++i) number[i] = i;
  return LoadAny<Ints>(number);
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
  static Floats Widen(Raw v) { return AsFloats(__builtin_convertvector(v, Words) << 16); }
  // Rounds to nearest even; NaN stays NaN.
  static Raw Narrow(Floats v) {
    const Words w = AsWords(v);
    const Words rounded = (w + 0x7fffu + ((w >> 16) & 1u)) >> 16;
    return __builtin_convertvector(v == v ? rounded : SplatWord(0x7fc0u), Halves);
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
  // Exponents are rebased by integer arithmetic, subnormals by a float subtraction.
  static Floats Widen(Raw v) {
    const Words h = __builtin_convertvector(v, Words);
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
    return __builtin_convertvector(h | ((w >> 16) & 0x8000u), Halves);
  }
#endif
};

// Asks for the memory of `count` elements from p on, which need not exist: nothing is read.
template <typename Memory>
inline void Prefetch(const Memory* p, int count) {
  constexpr int kLine = 64 / sizeof(Memory);
  for (int i = 0; i < count; i += kLine) __builtin_prefetch(p + i, 0, 2);
}

// Copies `count` < kLanes elements in at most log2(kLanes) pieces of constant size.
template <typename Memory>
inline void CopySome(Memory* to, const Memory* from, int count) {
  int i = 0;
#pragma GCC unroll 8
  for (int width = kLanes / 2; width > 0; width /= 2) {
    if ((count & width) == 0) continue;
    __builtin_memcpy(to + i, from + i, width * sizeof(Memory));
    i += width;
  }
}

// The first `count` < kLanes elements of memory; the others are zero, or are not written.
template <typename Raw, typename Memory>
inline Raw LoadRawSome(const Memory* p, int count) {
#if KB_ISA_LEVEL >= 4
  if constexpr (sizeof(Memory) == 4)
    return (Raw)_mm512_maskz_loadu_epi32((__mmask16)((1u << count) - 1), p);
  if constexpr (sizeof(Memory) == 2)
    return (Raw)_mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), p);
#endif
  Memory buffer[kLanes] = {};
  CopySome(buffer, p, count);
  return LoadAny<Raw>(buffer);
}

template <typename Raw, typename Memory>
inline void StoreRawSome(Memory* p, Raw v, int count) {
#if KB_ISA_LEVEL >= 4
  if constexpr (sizeof(Memory) == 4)
    return _mm512_mask_storeu_epi32(p, (__mmask16)((1u << count) - 1), (__m512i)v);
  if constexpr (sizeof(Memory) == 2)
    return _mm256_mask_storeu_epi16(p, (__mmask16)((1u << count) - 1), (__m256i)v);
#endif
  Memory buffer[kLanes];
  StoreAny(buffer, v);
  CopySome(p, buffer, count);
}

template <typename E>
inline Floats Load(const typename E::Memory* p) {
  return E::Widen(LoadAny<typename E::Raw>(p));
}

template <typename E>
inline void Store(typename E::Memory* p, Floats v) {
  StoreAny(p, E::Narrow(v));
}

template <typename E>
inline Floats LoadSome(const typename E::Memory* p, int count, float fill) {
  const Floats v = E::Widen(LoadRawSome<typename E::Raw>(p, count));
  return LaneNumbers() < count ? v : Splat(fill);
}

template <typename E>
inline void StoreSome(typename E::Memory* p, Floats v, int count) {
  StoreRawSome(p, E::Narrow(v), count);
}

// Which of kLanes mask bytes are not zero, as all-ones lanes.
inline Ints LoadDropped(const uint8_t* p) {
#if KB_ISA_LEVEL >= 4
  return (Ints)_mm512_maskz_cvtepi8_epi32((__mmask16)0xffff, LoadAny<__m128i>(p)) != 0;
#elif KB_ISA_LEVEL == 3
  return (Ints)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(LoadAny<int64_t>(p))) != 0;
#else
  return (Ints)_mm_cvtepi8_epi32(_mm_cvtsi32_si128(LoadAny<int32_t>(p))) != 0;
#endif
}

inline Ints LoadDroppedSome(const uint8_t* p, int count) {
  uint8_t buffer[kLanes] = {};
  CopySome(buffer, p, count);
  return LoadDropped(buffer);
}

inline Floats Max(Floats a, Floats b) { return a > b ? a : b; }  // a NaN in `a` loses

// The lanes of v, lane i from lane i ^ distance: the step of a reduction.
inline Floats Exchange(Floats v, int distance) {
  return __builtin_shuffle(v, LaneNumbers() ^ distance);
}

inline float MaxLane(Floats v) {
#pragma GCC unroll 8
  for (int distance = kLanes / 2; distance > 0; distance /= 2) v = Max(Exchange(v, distance), v);
  return v[0];
}

inline float SumLanes(Floats v) {
#pragma GCC unroll 8
  for (int distance = kLanes / 2; distance > 0; distance /= 2) v += Exchange(v, distance);
  return v[0];
}

inline double SumLanes(Doubles v) {
  double sum = v[0];
  for (int i = 1; i < kLanes / 2; ++i) sum += v[i];
  return sum;
}

inline Doubles Widen(HalfFloats v) {
#if KB_ISA_LEVEL >= 4
  return (Doubles)_mm512_maskz_cvtps_pd((__mmask8)0xff, (__m256)v);
#elif KB_ISA_LEVEL == 3
  return (Doubles)_mm256_cvtps_pd((__m128)v);
#else
  return __builtin_convertvector(v, Doubles);
#endif
}

inline Doubles LowDoubles(Floats v) {
  HalfFloats half;
  __builtin_memcpy(&half, &v, sizeof(half));
  return Widen(half);
}

inline Doubles HighDoubles(Floats v) {
  HalfFloats half;
  __builtin_memcpy(&half, reinterpret_cast<const char*>(&v) + sizeof(half), sizeof(half));
  return Widen(half);
}

}  // namespace softmax
