// The instructions of sm_90a that the scaled products use: tensor copies that arrive at barriers,
// products by four warps of FP8 operands in shared memory, and registers that change hands.
#pragma once

#include "kbundle/device_bulk.h"
#include "ptx.cuh"

struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace grouped {

using kbundle::device::Await;
using kbundle::device::ByteBarrier;
using kbundle::device::Expect;
using kbundle::device::FenceBarriers;

// What the loader's encoding of a tensor map is to a kernel.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// By one thread; FenceBarriers before others, or the copy engine, may see them.
__device__ __forceinline__ void InitBarrier(ByteBarrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}

__device__ __forceinline__ void Arrive(ByteBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

// Starts copying 4 bytes, or writing zeros where not `wanted`; `from` is not read then.
__device__ __forceinline__ void CopyAsync4(float* to, const float* from, bool wanted) {
  const int size = wanted ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(size)
               : "memory");
}

// One of the barrier's arrivals, once all that this thread's CopyAsync4 started is there.
__device__ __forceinline__ void ArriveWithCopies(ByteBarrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}

// A box of a matrix, or of one of several, whose innermost place is `inner`.
__device__ __forceinline__ void LoadBox(unsigned to, const TensorMap* map, ByteBarrier* barrier,
                                        int inner, int line) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(SharedAddress(barrier)), "r"(inner), "r"(line)
      : "memory");
}

__device__ __forceinline__ void LoadBox(unsigned to, const TensorMap* map, ByteBarrier* barrier,
                                        int inner, int line, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(SharedAddress(barrier)), "r"(inner), "r"(line), "r"(matrix)
      : "memory");
}

__device__ __forceinline__ void PrefetchMap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// By all threads of four warps: how many registers each of them has from here on.
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// An operand in shared memory: lines of 128 bytes, eight of them 1024 bytes together, whose chunks
// of 16 bytes change places by an exclusive or with the line's number, as tensor copies with
// swizzle 128b leave them. `address` is that of a line whose number is a multiple of 8. What is 16
// bytes further on, within the line or by whole eights of lines, is this number and one.
__device__ __forceinline__ unsigned long long Lines128(unsigned address) {
  constexpr unsigned long long kSwizzle128 = 1ull << 62, kEightLines = 1024ull >> 4;
  return kSwizzle128 | kEightLines << 32 | 1ull << 16 | (address & 0x3ffffu) >> 4;
}

// Around the products of four warps: what they write must not be touched between the two.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

template <int kCount>
__device__ __forceinline__ void EndProducts(float (&c)[kCount]) {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

#define KB_16(c, i)                                                                           \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7]), "+f"(c[i + 8]), "+f"(c[i + 9]), "+f"(c[i + 10]),        \
      "+f"(c[i + 11]), "+f"(c[i + 12]), "+f"(c[i + 13]), "+f"(c[i + 14]), "+f"(c[i + 15])
#define KB_WARPS_PRODUCT(types)                                                           \
  asm volatile(                                                                           \
      "{.reg .pred adds; setp.ne.b32 adds, %66, 0; "                                      \
      "wgmma.mma_async.sync.aligned.m64n128k32.f32." types                                \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
      "%64, %65, adds, 1, 1;}"                                                            \
      : KB_16(c, 0), KB_16(c, 16), KB_16(c, 32), KB_16(c, 48)                             \
      : "l"(a), "l"(b), "r"(static_cast<int>(adds))                                       \
      : "memory")

// c = a b, or += where it `adds`: 64 lines of a in Q, 128 of b in e4m3, 32 of the depth. Thread t
// has of c the rows 16 (t / 32) + t % 32 / 4 and 8 further down; c[4 j], c[4 j + 1] are the first's
// columns 8 j + t % 4 * 2 and the next, c[4 j + 2], c[4 j + 3] the other's.
template <typename Q>
__device__ __forceinline__ void WarpsProduct(float (&c)[64], unsigned long long a,
                                             unsigned long long b, bool adds);

template <>
__device__ __forceinline__ void WarpsProduct<__nv_fp8_e4m3>(float (&c)[64], unsigned long long a,
                                                            unsigned long long b, bool adds) {
  KB_WARPS_PRODUCT("e4m3.e4m3");
}

template <>
__device__ __forceinline__ void WarpsProduct<__nv_fp8_e5m2>(float (&c)[64], unsigned long long a,
                                                            unsigned long long b, bool adds) {
  KB_WARPS_PRODUCT("e5m2.e4m3");
}

#undef KB_WARPS_PRODUCT
#undef KB_16

}  // namespace grouped
