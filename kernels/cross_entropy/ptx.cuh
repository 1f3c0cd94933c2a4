// The few instructions of the cross-entropy kernels that C++ does not name.
//
// Logits are read once or twice and are far larger than the caches, so their loads pass L1 by and
// stores leave L2 first. The gradient may lie where the logits are, so no load may take memory for
// constant.
#pragma once

#include "kbundle/device_cluster.h"
#include "kbundle/device_memory.h"
#include "kbundle/device_order.h"

namespace loss {

using kbundle::device::ClusterBarrier;
using kbundle::device::ClusterRank;
using kbundle::device::ClusterSize;
using kbundle::device::Store2;
using kbundle::device::Store4;
using kbundle::device::StoreRemote;
using kbundle::device::StoreStream16;
using kbundle::device::Words4;

__device__ __forceinline__ Words4 LoadPast16(const void* p) {
  Words4 v;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p));
  return v;
}

__device__ __forceinline__ unsigned LoadWord4(const void* p) {
  unsigned word;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(word) : "l"(p));
  return word;
}

__device__ __forceinline__ unsigned LoadWord2(const void* p) {
  unsigned word;
  asm volatile("{.reg .b16 h; ld.global.b16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(word) : "l"(p));
  return word;
}

// Each half of two words of elements of 16 bits; of a number and a NaN, the number.
template <typename T>
__device__ __forceinline__ unsigned MaxOfPairs(unsigned a, unsigned b);

template <>
__device__ __forceinline__ unsigned MaxOfPairs<__half>(unsigned a, unsigned b) {
  unsigned most;
  asm("max.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}

template <>
__device__ __forceinline__ unsigned MaxOfPairs<__nv_bfloat16>(unsigned a, unsigned b) {
  unsigned most;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}

// 16 bytes to shared memory, later; the thread that asked may read them after WaitForCopies.
__device__ __forceinline__ void CopyLater16(Words4* to, const void* from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

__device__ __forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What lanes read before it, lanes may write behind it.
__device__ __forceinline__ void OrderWarp() { __syncwarp(); }

}  // namespace loss
