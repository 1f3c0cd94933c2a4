// kernels/quantize/memory.cuh as simt/machine.h runs it: the same functions, without a GPU.
#pragma once

#include "machine.h"

#define __global__ inline
#define __launch_bounds__(...)

#include "kbundle/device_word.h"

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
