// The instructions of the matmul kernels that C++ does not name, loads that leave L1 alone and the
// order of kernels that overlap, and gelu with its slope.
#pragma once

#include "kbundle/device_cluster.h"
#include "kbundle/device_element.h"
#include "kbundle/device_order.h"

namespace matmul {

using kbundle::device::ClusterArrive;
using kbundle::device::ClusterBarrier;
using kbundle::device::ClusterRank;
using kbundle::device::ClusterWait;
using kbundle::device::Element;
using kbundle::device::Exp2;
using kbundle::device::int64;
using kbundle::device::LetNextKernelStart;
using kbundle::device::LoadOne;
using kbundle::device::Reciprocal;
using kbundle::device::StoreOne;
using kbundle::device::StoreRemote;
using kbundle::device::WaitForEarlierKernels;

// What is read once need not push anything out of L1. Not ld.global.nc: a kernel that starts
// before the one in front of it has ended may see what that one still writes.
__device__ __forceinline__ uint4 LoadOnce16(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ void Store16(void* p, const uint4& v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// The derivative of gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), the second
// factor as a sigmoid. Past 12 it is 0 or 1, and a square might be too large.
__device__ __forceinline__ float GeluSlope(float x) {
  x = x < -12.0f ? -12.0f : x > 12.0f ? 12.0f : x;  // NaN stays
  const float square = x * x, twice = 1.5957691216f * x * (1.0f + 0.044715f * square);
  const float sigmoid = Reciprocal(1.0f + Exp2(-1.4426950409f * twice));
  const float inner = 1.5957691216f * x * (1.0f + 0.134145f * square);
  return sigmoid + inner * sigmoid * (1.0f - sigmoid);
}

__device__ __forceinline__ float Gelu(float x) {
  const float of = x < -12.0f ? -12.0f : x;  // where the sigmoid is 0
  const float twice = 1.5957691216f * of * (1.0f + 0.044715f * of * of);
  return x * Reciprocal(1.0f + Exp2(-1.4426950409f * twice));
}

}  // namespace matmul
