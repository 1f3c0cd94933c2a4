// What the tests of quantize's kernels on the CPU share: launches of whole grids, buffers between
// guards, random numbers, and what FP8 codes stand for by definition.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/simt/machine.h"
//
#include "quantize/vector.cuh"

namespace quantize {

using Byte = unsigned char;

// What a code stands for, by the definition of the type.
inline float NumberOf(Byte code, int mantissa_bits, int bias, bool has_infinities) {
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const int last = 0x7f >> mantissa_bits;
  if (has_infinities ? exponent == last : (code & 0x7f) == 0x7f) return NAN;
  const float whole = exponent == 0 ? 0.0f : static_cast<float>(1 << mantissa_bits);
  const float size = std::ldexp(whole + static_cast<float>(mantissa),
                                std::max(exponent, 1) - bias - mantissa_bits);
  return code & 0x80 ? -size : size;
}

template <typename Q>
struct Definition;
template <>
struct Definition<__nv_fp8_e4m3> {
  static float Number(Byte code) { return NumberOf(code, 3, 7, false); }
};
template <>
struct Definition<__nv_fp8_e5m2> {
  static float Number(Byte code) { return NumberOf(code, 2, 15, true); }
};

// What kernels are told of the type.
template <typename Q>
constexpr bool kE5m2 = false;
template <>
constexpr bool kE5m2<__nv_fp8_e5m2> = true;

template <typename Q>
Byte CodeOfFloat(float x) {
  return static_cast<Byte>(Fp8<Q>::Pack(x, 0.0f));
}

// Between guards, so that what is written outside is seen.
template <typename T>
struct Guarded {
  static constexpr size_t kGuard = 64;
  size_t count, start;
  std::vector<T> memory;
  explicit Guarded(size_t count, size_t offset = 0)
      : count(count),
        start(kGuard + offset),
        memory(kGuard + offset + count + kGuard, static_cast<T>(0xa5)) {}
  T* data() { return memory.data() + start; }
  const T* data() const { return memory.data() + start; }
  bool Whole() const {
    for (size_t i = 0; i < memory.size(); ++i)
      if ((i < start || i >= start + count) && memory[i] != static_cast<T>(0xa5)) return false;
    return true;
  }
};

// Tensors from which neighbours may be read: no byte beside them.
struct Readable {
  static inline std::vector<const Readable*> all;
  Readable() { all.push_back(this); }
  Readable(const Readable&) = delete;
  virtual ~Readable() { all.erase(std::find(all.begin(), all.end(), this)); }
  virtual void AllowTo(simt::Block& block) const = 0;
};

// Random numbers of many sizes, as T holds them, `shift` elements behind an aligned address.
template <typename T>
struct Input : Readable {
  using Bits = typename Element<T>::Bits;
  size_t shift;
  std::vector<Bits> bits;
  std::vector<float> f;
  float most = 0.0f;

  explicit Input(size_t count, size_t shift = 0) : shift(shift), bits(shift) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i)
      Add(std::ldexp(normal(random), static_cast<int>(random() % 12) - 8));
  }
  void Add(float x) {
    bits.push_back(0);
    f.push_back(0.0f);
    Set(f.size() - 1, x);
    most = std::max(most, std::abs(f.back()));
  }
  void Set(size_t i, float x) {
    bits[shift + i] = static_cast<Bits>(Element<T>::Narrow(x));
    f[i] = Element<T>::Widen(bits[shift + i]);
  }
  const T* data() const { return reinterpret_cast<const T*>(bits.data() + shift); }
  void AllowTo(simt::Block& block) const override { block.Allow(data(), f.size() * sizeof(Bits)); }
};

// Runs all blocks of a grid, their threads in another order for each.
template <typename Kernel>
void Launch(int blocks, const Kernel& kernel, size_t shared = 0) {
  for (int i = 0; i < blocks; ++i) {
    simt::Block block(kThreads, shared, 17u * i + 3, simt::Copies::kLate);
    for (const Readable* readable : Readable::all) readable->AllowTo(block);
    EXPECT_TRUE(block.Run({static_cast<unsigned>(i), 0, 0}, kernel));
  }
}

}  // namespace quantize
