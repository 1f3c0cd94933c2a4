// kernels/include/kbundle/device_element.h as simt/machine.h runs it: the same functions, without a
// GPU. Types are tags, as there.
#pragma once

#include "../machine.h"

struct __half;
struct __nv_bfloat16;

namespace kbundle {
namespace device {

using int64 = long long;

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr float kLog2e = 1.4426950408889634f;

inline float Exp2(float t) { return t < -126.0f ? 0.0f : std::exp2(t); }
inline float Reciprocal(float t) { return 1.0f / t; }

inline float Infinity() { return __uint_as_float(0x7f800000u); }

template <typename T>
struct Element;

template <>
struct Element<float> {
  using Bits = unsigned;
  static constexpr int kBytes = 4;
  static float Widen(unsigned word) { return __uint_as_float(word); }
  static unsigned Narrow(float f) { return __float_as_uint(f); }
  static float FromBits(Bits bits) { return Widen(bits); }
  static Bits ToBits(float f) { return Narrow(f); }
};

template <>
struct Element<__half> {
  using Bits = unsigned short;
  static constexpr int kBytes = 2;
  static float Widen(unsigned word) {
    return std::bit_cast<_Float16>(static_cast<unsigned short>(word));
  }
  static unsigned Narrow(float f) {
    return std::bit_cast<unsigned short>(static_cast<_Float16>(f));
  }
  static float Low(unsigned word) { return Widen(word & 0xffffu); }
  static unsigned Pack(float low, float high) { return Narrow(low) | Narrow(high) << 16; }
  static float FromBits(Bits bits) { return Widen(bits); }
  static Bits ToBits(float f) { return static_cast<Bits>(Narrow(f)); }
};

template <>
struct Element<__nv_bfloat16> {
  using Bits = unsigned short;
  static constexpr int kBytes = 2;
  static float Widen(unsigned word) { return __uint_as_float(word << 16); }
  static unsigned Narrow(float f) {
    const unsigned word = __float_as_uint(f);
    return f == f ? (word + 0x7fffu + ((word >> 16) & 1u)) >> 16 : 0x7fffu;
  }
  static float Low(unsigned word) { return Widen(word & 0xffffu); }
  static unsigned Pack(float low, float high) { return Narrow(low) | Narrow(high) << 16; }
  static float FromBits(Bits bits) { return Widen(bits); }
  static Bits ToBits(float f) { return static_cast<Bits>(Narrow(f)); }
};

template <typename T>
float LoadOne(const void* p, int64 index) {
  return Element<T>::Widen(static_cast<const typename Element<T>::Bits*>(p)[index]);
}

template <typename T>
void StoreOne(void* p, int64 index, float f) {
  using Bits = typename Element<T>::Bits;
  static_cast<Bits*>(p)[index] = static_cast<Bits>(Element<T>::Narrow(f));
}

template <typename T, int kWords, int kCount>
void WidenAll(const unsigned (&words)[kWords], float (&f)[kCount]) {
  for (int i = 0; i < kCount; ++i)
    f[i] = Element<T>::Widen(kCount == kWords ? words[i] : words[i / 2] >> (i % 2 * 16) & 0xffffu);
}

}  // namespace device
}  // namespace kbundle
