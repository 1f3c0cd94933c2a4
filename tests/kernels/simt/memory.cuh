// kernels/quantize/memory.cuh as simt/machine.h runs it: the same functions, without a GPU.
#pragma once

#include "machine.h"

#define __global__ inline
#define __launch_bounds__(...)

struct alignas(8) uint2 {
  unsigned x, y;
};

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline void atomicMax(unsigned* to, unsigned value) {
  if (*to < value) *to = value;
}

namespace quantize {

template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = unsigned char;
};
template <>
struct Word<2> {
  using Type = unsigned short;
};
template <>
struct Word<4> {
  using Type = unsigned;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<16> {
  using Type = uint4;
};

// Both take only what is aligned, as a GPU does.
template <typename W>
W LoadStream(const void* p) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % sizeof(W), 0u);
  W w;
  std::memcpy(&w, p, sizeof(W));
  return w;
}
template <typename W>
void StoreStream(void* p, W w) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % sizeof(W), 0u);
  std::memcpy(p, &w, sizeof(W));
}

}  // namespace quantize
