// Rows of memory on their way to shared memory, or back, while threads work: the copy engine of
// sm_90 and later GPUs. For CUDA kernels.
//
// A barrier counts bytes: one thread says how many are to come (Expect), asks for them (BulkLoad),
// and all wait for the phase to end (Await) whose parity they count themselves: 0, 1, 0, 1, ...
// Addresses and sizes of copies are multiples of 16.
#pragma once

namespace kbundle {
namespace device {

using ByteBarrier = unsigned long long;  // in shared memory

__device__ __forceinline__ unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// By one thread; FenceBarriers before others, or the copy engine, may see them.
__device__ __forceinline__ void InitBarrier(ByteBarrier* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
}

__device__ __forceinline__ void FenceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// What this thread has written to shared memory comes before what it asks the copy engine for.
__device__ __forceinline__ void FenceCopies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void Expect(ByteBarrier* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void BulkLoad(void* to, const void* from, unsigned bytes,
                                         ByteBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// By one thread, when all that wrote the bytes have met behind their FenceCopies. AwaitStores by
// the same thread before they are written again, or the block ends.
__device__ __forceinline__ void BulkStore(void* to, const void* from, unsigned bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2; "
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(SharedAddress(from)), "r"(bytes)
      : "memory");
}

// Until all that this thread has asked BulkStore for has been read.
__device__ __forceinline__ void AwaitStores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ __forceinline__ void Await(ByteBarrier* barrier, unsigned parity) {
  asm volatile(
      "{.reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
      "@!done bra again;}" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace device
}  // namespace kbundle
