// What host kernels that make FP8 codes share: rows of floats to FP8 codes and back, largest
// magnitudes, scales, and bytes that are transposed.
#pragma once

#include "kbundle/host_fp8.h"

namespace kbundle {
namespace host {

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr float kHighestScale = 0x1p126f;  // its reciprocal is a normal number

// The largest number of an FP8 type.
template <typename Q>
constexpr float kMost = 448.0f;
template <>
constexpr float kMost<E5M2> = 57344.0f;

// The largest magnitude of vectors, as bits: NaN counts as the largest, and no order matters.
struct Largest {
  Ints most = Ints{};

  void Add(Floats v) {
    const Ints magnitude = (Ints)(AsWords(v) & 0x7fffffffu);
    most = magnitude > most ? magnitude : most;
  }
  uint32_t Bits() const {
    int32_t all = 0;
    for (int i = 0; i < kLanes; ++i) all = most[i] > all ? most[i] : all;
    return static_cast<uint32_t>(all);
  }
  // Into *amax, which began as 0 and is changed by several threads.
  void Keep(float* amax) const {
    uint32_t bits = Bits(), *to = reinterpret_cast<uint32_t*>(amax);
    if (bits > kInfinityBits) bits = 0x7fc00000u;  // one NaN for all
    uint32_t old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (old < bits &&
           !__atomic_compare_exchange_n(to, &old, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
};

// The scale that brings amax to `most`, or the highest; 1 where amax is 0 or not finite.
inline float ScaleOfAmax(float amax, float most) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, amax) & 0x7fffffffu;
  if (bits == 0 || bits >= kInfinityBits) return 1.0f;
  const float scale = most / __builtin_bit_cast(float, bits);
  return scale > kHighestScale ? kHighestScale : scale;
}

// The scale that was given, or that of the amax that a step before found.
template <typename Q>
inline float ScaleOf(const float* scale, const float* amax) {
  return scale ? *scale : ScaleOfAmax(*amax, kMost<Q>);
}

// What the codes of a block are multiplied by again, whose largest magnitude has the bits `most`:
// amax / kMost, where it counts as epsilon at least, rounded up to a power of two if so wanted; 1
// where amax is 0 or not finite, and never below 2^-126, so that its reciprocal is finite.
template <typename Q>
inline float BlockInverse(uint32_t most, float epsilon, bool power_of_two) {
  const uint32_t least = epsilon > 0 ? __builtin_bit_cast(uint32_t, epsilon) : 0;
  most = most > least ? most : least;
  if (most == 0 || most >= kInfinityBits) return 1.0f;
  uint32_t bits = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, most) / kMost<Q>);
  if (power_of_two) bits = (bits + 0x7fffffu) & kInfinityBits;
  const float inverse = __builtin_bit_cast(float, bits);
  return inverse > 0x1p-126f ? inverse : 0x1p-126f;
}

// q[i] = code(x[i] * scale), and the floats are shown to see(i, floats); past `count` they are 0.
template <typename E, typename Q, typename See>
__attribute__((always_inline)) inline void QuantizeRow(uint8_t* q, const typename E::Memory* x,
                                                       int64_t count, float scale, const See& see) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats f = E::Widen(LoadAny<typename E::Raw>(x + i));
    see(i, f);
    StoreAny(q + i, Q::Narrow(f * scale));
  }
  if (i < count) {
    const Floats f = Load<E>(x + i, count - i);
    see(i, f);
    Store<Q>(q + i, f * scale, count - i);
  }
}

inline void CopyBytes(uint8_t* to, const uint8_t* from, int64_t count) {
  int64_t i = 0;
  for (; i + kBytes <= count; i += kBytes) StoreAny(to + i, LoadAny<Words>(from + i));
  CopySome(to + i, from + i, count - i);
}

typedef uint8_t Sixteen __attribute__((vector_size(16)));

// 16 rows of 16 bytes, `from_pitch` bytes apart, become 16 columns: four rounds, each of which
// interleaves row i with row i + 8.
inline void Transpose16(uint8_t* to, int64_t to_pitch, const uint8_t* from, int64_t from_pitch) {
  Sixteen row[16], next[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) row[i] = LoadAny<Sixteen>(from + i * from_pitch);
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
#if defined(__x86_64__)
      next[2 * i] = (Sixteen)_mm_unpacklo_epi8((__m128i)row[i], (__m128i)row[i + 8]);
      next[2 * i + 1] = (Sixteen)_mm_unpackhi_epi8((__m128i)row[i], (__m128i)row[i + 8]);
#else
      next[2 * i] = __builtin_shufflevector(row[i], row[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                            5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + 8], 8, 24, 9, 25, 10, 26, 11, 27,
                                                12, 28, 13, 29, 14, 30, 15, 31);
#endif
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) row[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) StoreAny(to + i * to_pitch, row[i]);
}

// The same of any part of a matrix of bytes: `rows` rows of `columns` bytes.
inline void TransposeBytes(uint8_t* to, int64_t to_pitch, const uint8_t* from, int64_t from_pitch,
                           int64_t rows, int64_t columns) {
  const int64_t whole_rows = rows / 16 * 16, whole_columns = columns / 16 * 16;
  for (int64_t c = 0; c < whole_columns; c += 16)
    for (int64_t r = 0; r < whole_rows; r += 16)
      Transpose16(to + c * to_pitch + r, to_pitch, from + r * from_pitch + c, from_pitch);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
      to[c * to_pitch + r] = from[r * from_pitch + c];
}

}  // namespace host
}  // namespace kbundle

// Kernels of one function for each type of elements, name_f32 of F32 and so on, and for each of
// them and each type of codes, name_f32_e4m3 of <F32, E4M3>. Beside host_kernel.h.
#define KB_HOST_KERNEL_ELEMENTS(name, function)              \
  KB_HOST_KERNEL(name##_f32, function<::kbundle::host::F32>) \
  KB_HOST_KERNEL(name##_f16, function<::kbundle::host::F16>) \
  KB_HOST_KERNEL(name##_bf16, function<::kbundle::host::BF16>)

#define KB_HOST_KERNEL_CODES(name, function)          \
  KB_HOST_KERNEL_CODES_OF(name, function, e4m3, E4M3) \
  KB_HOST_KERNEL_CODES_OF(name, function, e5m2, E5M2)
#define KB_HOST_KERNEL_CODES_OF(name, function, codes, Q)                                \
  KB_HOST_KERNEL(name##_f32_##codes, function<::kbundle::host::F32, ::kbundle::host::Q>) \
  KB_HOST_KERNEL(name##_f16_##codes, function<::kbundle::host::F16, ::kbundle::host::Q>) \
  KB_HOST_KERNEL(name##_bf16_##codes, function<::kbundle::host::BF16, ::kbundle::host::Q>)
