// The instructions of sm_90a that C++ does not name: boxes of tensors on their way to shared memory
// and back, products by four warps of what lies there, registers that change hands. For CUDA
// kernels.
#pragma once

#include "kbundle/device_bulk.h"

namespace kbundle {
namespace device {

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

// The same with `at` counting elements, lines, matrices, and what holds matrices.
__device__ __forceinline__ void LoadBox(unsigned to, const TensorMap* map, ByteBarrier* barrier,
                                        const int (&at)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(SharedAddress(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
      : "memory");
}

// The other way: what of the box lies in the tensor is written. All threads that filled the box say
// FenceCopies before. A thread's boxes since its last CommitBoxes are a group; after AwaitBoxesRead
// their shared memory may be filled anew.
__device__ __forceinline__ void StoreBox(const TensorMap* map, unsigned from, const int (&at)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
      : "memory");
}

__device__ __forceinline__ void CommitBoxes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ void AwaitBoxesRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
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

// Before products of four warps, behind whatever else wrote what they read or add to;
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// behind them: those since the last call are a group,
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// and this waits for all groups but the last kPending.
template <int kPending>
__device__ __forceinline__ void AwaitProductsBut() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Registers of products that were waited for: nothing touches them before this.
template <int kCount>
__device__ __forceinline__ void Hold(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

template <int kSteps>
__device__ __forceinline__ void Hold(unsigned (&a)[kSteps][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kSteps; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

template <int kCount>
__device__ __forceinline__ void EndProducts(float (&c)[kCount]) {
  CommitProducts();
  AwaitProductsBut<0>();
  Hold(c);
}

}  // namespace device
}  // namespace kbundle
