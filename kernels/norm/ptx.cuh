// The few instructions of the norm kernels that C++ does not name.
//
// Rows are read once and written once: their loads pass L1 by in a forward pass, and their stores
// leave L2 first. gamma and beta are read again by every row, so their loads stay in L1.
#pragma once

#include "kbundle/device_cluster.h"
#include "kbundle/device_memory.h"
#include "kbundle/device_order.h"

namespace norms {

using kbundle::device::ClusterBarrier;
using kbundle::device::ClusterRank;
using kbundle::device::ClusterSize;
using kbundle::device::Forget;
using kbundle::device::LetNextKernelStart;
using kbundle::device::Load16;
using kbundle::device::Load2;
using kbundle::device::Load4;
using kbundle::device::Load8;
using kbundle::device::LoadStream16;
using kbundle::device::Store2;
using kbundle::device::Store4;
using kbundle::device::StoreRemote;
using kbundle::device::StoreStream16;
using kbundle::device::WaitForEarlierKernels;
using kbundle::device::Words2;
using kbundle::device::Words4;

// 16 bytes that a neighbour wants, too.
__device__ __forceinline__ uint4 LoadBoth16(const void* p) {
  const Words4 v = Load16(p);
  return {v.word[0], v.word[1], v.word[2], v.word[3]};
}

// Codes, which leave L2 first.
__device__ __forceinline__ void StoreStream8(void* p, unsigned low, unsigned high) {
  asm volatile("st.global.cs.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(low), "r"(high) : "memory");
}
__device__ __forceinline__ void StoreStream4(void* p, unsigned word) {
  asm volatile("st.global.cs.b32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
}

__device__ __forceinline__ void Forget(int& word) { asm volatile("" : "+r"(word)); }

// d += A * B of a warp: A is 16 x 16 and B 16 x 8, both of T.
template <typename T>
__device__ __forceinline__ void MultiplyAdd(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                            unsigned b1);

#define NORM_MULTIPLY_ADD(T, type)                                                                 \
  template <>                                                                                      \
  __device__ __forceinline__ void MultiplyAdd<T>(float(&d)[4], const unsigned(&a)[4], unsigned b0, \
                                                 unsigned b1) {                                    \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                     \
        ".f32 {%0, %1, %2, %3}, "                                                                  \
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                            \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                           \
  }
NORM_MULTIPLY_ADD(__half, "f16")
NORM_MULTIPLY_ADD(__nv_bfloat16, "bf16")
#undef NORM_MULTIPLY_ADD

// 1 / sqrt(t), within 2 ulps.
__device__ __forceinline__ float InverseRoot(float t) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
  return r;
}

}  // namespace norms
