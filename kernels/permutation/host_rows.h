// Rows of bytes and of floats on x86-64-v2, v3 and v4: copies, zeros, conversions, sums.
//
// Only GCC/Clang vector types, plus the F16C conversions. Memory is aligned to its elements only.
#pragma once

#include <stdint.h>

#if KB_ISA_LEVEL >= 3
#include <immintrin.h>
#endif

namespace permutation {

constexpr int kBytes = KB_ISA_LEVEL >= 4 ? 64 : KB_ISA_LEVEL == 3 ? 32 : 16;
constexpr int kLanes = kBytes / 4;

typedef float Floats __attribute__((vector_size(kBytes)));
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

// Fewer than kBytes bytes, in pieces of constant size.
inline void CopySome(char* to, const char* from, int64_t bytes) {
#pragma GCC unroll 8
  for (int width = kBytes / 2; width > 0; width /= 2) {
    if ((bytes & width) == 0) continue;
    __builtin_memcpy(to, from, width);
    to += width;
    from += width;
  }
}

inline void CopyRow(char* to, const char* from, int64_t bytes) {
  int64_t i = 0;
  for (; i + kBytes <= bytes; i += kBytes) StoreAny(to + i, LoadAny<Words>(from + i));
  CopySome(to + i, from + i, bytes - i);
}

inline void ClearRow(char* to, int64_t bytes) {
  int64_t i = 0;
  for (; i + kBytes <= bytes; i += kBytes) StoreAny(to + i, Words{});
  const char zeros[kBytes] = {};
  CopySome(to + i, zeros, bytes - i);
}

// An element type: its memory, one element as a float and back, and a vector of them.
struct F32 {
  using Memory = float;
  using Raw = Floats;
  static Floats Widen(Raw v) { return v; }
  static Raw Narrow(Floats v) { return v; }
};

struct BF16 {
  using Memory = uint16_t;
  using Raw = Halves;
  static Floats Widen(Raw v) { return (Floats)(__builtin_convertvector(v, Words) << 16); }
  // Rounds to nearest even; NaN stays NaN.
  static Raw Narrow(Floats v) {
    const Words w = (Words)v;
    const Words rounded = (w + 0x7fffu + ((w >> 16) & 1u)) >> 16;
    return __builtin_convertvector(v == v ? rounded : SplatWord(0x7fc0u), Halves);
  }
};

struct F16 {
  using Memory = uint16_t;
  using Raw = Halves;
#if KB_ISA_LEVEL >= 4
  static Floats Widen(Raw v) { return (Floats)_mm512_maskz_cvtph_ps(0xffff, (__m256i)v); }
  static Raw Narrow(Floats v) {
    return (Raw)_mm512_maskz_cvtps_ph(0xffff, (__m512)v,
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
#elif KB_ISA_LEVEL == 3
  static Floats Widen(Raw v) { return (Floats)_mm256_cvtph_ps((__m128i)v); }
  static Raw Narrow(Floats v) { return (Raw)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }
#else
  // Exponents are rebased by integer arithmetic, subnormals by a float subtraction: of normal
  // numbers, since the caller's thread may flush subnormal ones.
  static Floats Widen(Raw v) {
    const Words h = __builtin_convertvector(v, Words);
    const Words magnitude = (h & 0x7fffu) << 13;
    const Words exponent = magnitude & (0x7c00u << 13);
    const Words special = magnitude + ((255u - 31u) << 23);
    const Words normal = magnitude + ((127u - 15u) << 23);
    const Words subnormal =
        (Words)((Floats)(magnitude + (113u << 23)) - (Floats)SplatWord(113u << 23));
    const Words finite = exponent == 0u ? subnormal : normal;
    const Words w = exponent == (0x7c00u << 13) ? special : finite;
    return (Floats)(w | ((h & 0x8000u) << 16));
  }
  // Below 2^-14 the sum with 0.5 leaves the multiple of 2^-24, rounded, in the low bits.
  static Raw Narrow(Floats v) {
    const Words w = (Words)v;
    const Words magnitude = w & 0x7fffffffu;
    const Words subnormal = (Words)((Floats)magnitude + Splat(0.5f)) - (Words)Splat(0.5f);
    const Words normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    Words h = magnitude < (113u << 23) ? subnormal : normal;
    h = magnitude >= (143u << 23) ? SplatWord(0x7c00u) : h;
    h = magnitude > (255u << 23) ? SplatWord(0x7e00u) : h;
    return __builtin_convertvector(h | ((w >> 16) & 0x8000u), Halves);
  }
#endif
};

// `count` <= kLanes elements; the others are zero, or are not written.
template <typename E>
inline Floats Load(const typename E::Memory* p, int64_t count) {
  if (count >= kLanes) return E::Widen(LoadAny<typename E::Raw>(p));
  typename E::Memory buffer[kLanes] = {};
  CopySome(reinterpret_cast<char*>(buffer), reinterpret_cast<const char*>(p), count * sizeof(*p));
  return E::Widen(LoadAny<typename E::Raw>(buffer));
}

template <typename E>
inline void Store(typename E::Memory* p, Floats v, int64_t count) {
  if (count >= kLanes) return StoreAny(p, E::Narrow(v));
  typename E::Memory buffer[kLanes];
  StoreAny(buffer, E::Narrow(v));
  CopySome(reinterpret_cast<char*>(p), reinterpret_cast<const char*>(buffer), count * sizeof(*p));
}

template <typename E>
inline float LoadOne(const typename E::Memory* p) {
  return Load<E>(p, 1)[0];
}

inline double Sum(Floats v) {
  double sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(v[i]);
  return sum;
}

}  // namespace permutation
