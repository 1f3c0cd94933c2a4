// What softmax adds to kbundle/host_vector.h: rows' ends, masks, reductions.
//
// Intrinsics stand for what the compiler makes of vector types lane by lane: widening, masked
// memory.
#pragma once

#include "kbundle/host_vector.h"

namespace softmax {

using namespace kbundle::host;

typedef double Doubles __attribute__((vector_size(kBytes)));
typedef float HalfFloats __attribute__((vector_size(kBytes / 2)));

// Asks for the memory of `count` elements from p on, which need not exist: nothing is read.
template <typename Memory>
inline void Prefetch(const Memory* p, int count) {
  constexpr int kLine = 64 / sizeof(Memory);
  for (int i = 0; i < count; i += kLine) __builtin_prefetch(p + i, 0, 2);
}

// Elements 0..count - 1, fewer than a register holds; the others are zero. Put together in
// registers: what is stored in pieces and read as one waits for the stores, some 15 cycles.
// Neighbours may be read twice, but nothing that is not an element.
template <typename Raw, typename Memory>
inline Raw LoadRawSome(const Memory* p, int64_t count) {
  if (count <= 0) return Raw{};
#if KB_ISA_LEVEL >= 4
  const uint32_t those = (1u << count) - 1u;
  if constexpr (sizeof(Memory) == 4) {
    return (Raw)_mm512_maskz_loadu_epi32(static_cast<__mmask16>(those), p);
  } else if constexpr (sizeof(Memory) == 2) {
    return (Raw)_mm256_maskz_loadu_epi16(static_cast<__mmask16>(those), p);
  } else {
    return (Raw)_mm_maskz_loadu_epi8(static_cast<__mmask16>(those), p);
  }
#else
  constexpr int64_t kBits = 8 * sizeof(Memory);
  if constexpr (sizeof(Memory) == 4) {
#if KB_ISA_LEVEL == 3
    const Ints numbers = {0, 1, 2, 3, 4, 5, 6, 7};
    const Ints those = numbers < static_cast<int32_t>(count);
    return (Raw)_mm256_maskload_ps(reinterpret_cast<const float*>(p), (__m256i)those);
#else
    return Raw{p[0], count > 1 ? p[1] : Memory{}, count > 2 ? p[2] : Memory{}, Memory{}};
#endif
  } else {
    uint64_t low = 0, high = 0;
    if (count < 4) {
      low = p[0] | uint64_t{p[count / 2]} << (count / 2 * kBits) |
            uint64_t{p[count - 1]} << ((count - 1) * kBits);
    } else if constexpr (sizeof(Memory) == 2) {
      low = LoadAny<uint64_t>(p);
      if (count > 4) high = LoadAny<uint64_t>(p + count - 4) >> ((8 - count) * kBits);
    } else {
      low = LoadAny<uint32_t>(p) | uint64_t{LoadAny<uint32_t>(p + count - 4)}
                                       << ((count - 4) * kBits);
    }
    const uint64_t both[2] = {low, high};
    Raw raw;
#if KB_ISA_LEVEL == 3
    if constexpr (sizeof(Memory) == 2)
      return (Raw)_mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low));
#endif
    __builtin_memcpy(&raw, both, sizeof raw);  // of eight bytes at most: as it was stored
    return raw;
  }
#endif
}

// The first `count` < kLanes elements of memory; the others are not written.
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
#elif !defined(__x86_64__)
  typedef int8_t Signed __attribute__((vector_size(kLanes)));
  return __builtin_convertvector(LoadAny<Signed>(p), Ints) != 0;
#else
  return (Ints)_mm_cvtepi8_epi32(_mm_cvtsi32_si128(LoadAny<int32_t>(p))) != 0;
#endif
}

inline Ints LoadDroppedSome(const uint8_t* p, int count) {
  typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
  uint8_t buffer[kLanes];  // written as it is read: at once
  StoreAny(buffer, LoadRawSome<Bytes>(p, count));
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
