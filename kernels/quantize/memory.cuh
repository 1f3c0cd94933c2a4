// Memory of 1 to 16 bytes at once, with the hint that nobody wants it again: what is quantized is
// read once and written once, and is far larger than the caches.
#pragma once

#include "kbundle/device_word.h"

namespace quantize {

using kbundle::device::Word;

template <typename W>
__device__ __forceinline__ W LoadStream(const void* p) {
  return __ldg(static_cast<const W*>(p));
}

template <>
__device__ __forceinline__ uint4 LoadStream<uint4>(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// For what a neighbour wants, too.
template <typename W>
__device__ __forceinline__ W LoadBoth(const void* p) {
  return __ldg(static_cast<const W*>(p));
}

template <typename W>
__device__ __forceinline__ void StoreStream(void* p, W v) {
  __stcs(static_cast<W*>(p), v);
}

}  // namespace quantize
