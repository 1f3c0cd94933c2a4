// kernels/quantize/memory.cuh as simt/machine.h runs it: the same functions, without a GPU.
#pragma once

#include "machine.h"

#define __global__ inline
#define __launch_bounds__(...)

#include "kbundle/device_word.h"

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}

namespace quantize {

using kbundle::device::Word;

// Both take only what is aligned, as a GPU does.
template <typename W>
W LoadStream(const void* p) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % sizeof(W), 0u);
  W w;
  std::memcpy(&w, p, sizeof(W));
  return w;
}
template <typename W>
W LoadBoth(const void* p) {
  EXPECT_TRUE(simt::Block::Now().MayRead(p, sizeof(W))) << "a vector from outside the tensors";
  return LoadStream<W>(p);
}
template <typename W>
void StoreStream(void* p, W w) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % sizeof(W), 0u);
  std::memcpy(p, &w, sizeof(W));
}

}  // namespace quantize
