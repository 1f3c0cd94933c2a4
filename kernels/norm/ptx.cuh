// The few instructions of the norm kernels that C++ does not name: memory with cache hints,
// clusters, kernels that begin before the one in front of them has ended.
//
// Rows are read once and written once, and are far larger than the caches: their loads pass L1 by
// in a forward pass, and their stores leave L2 first. gamma and beta are read again by every row,
// so their loads stay in L1.
#pragma once

namespace norms {

struct Words4 {
  unsigned word[4];
};

__device__ __forceinline__ Words4 LoadStream16(const void* p) {
  Words4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p));
  return v;
}

__device__ __forceinline__ Words4 Load16(const void* p) {
  Words4 v;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p));
  return v;
}

__device__ __forceinline__ unsigned Load4(const void* p) {
  unsigned word;
  asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(word) : "l"(p));
  return word;
}

__device__ __forceinline__ unsigned Load2(const void* p) {
  unsigned word;
  asm volatile("{.reg .b16 h; ld.global.nc.b16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(word) : "l"(p));
  return word;
}

__device__ __forceinline__ void StoreStream16(void* p, const Words4& v) {
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.word[0]),
               "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

__device__ __forceinline__ void Store4(void* p, unsigned word) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
}

__device__ __forceinline__ void Store2(void* p, unsigned word) {
  asm volatile("{.reg .b16 h; cvt.u16.u32 h, %1; st.global.b16 [%0], h;}" ::"l"(p), "r"(word)
               : "memory");
}

// Makes the compiler forget what it derived from a word: deriving it again is cheaper than keeping
// it in registers.
__device__ __forceinline__ void Forget(unsigned& word) { asm volatile("" : "+r"(word)); }

__device__ __forceinline__ unsigned ClusterRank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ unsigned ClusterSize() {
  unsigned blocks;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
}

__device__ __forceinline__ void ClusterBarrier() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// Writes two floats to the shared variable `local` of block `rank` of the cluster.
__device__ __forceinline__ void StoreRemote(float2* local, unsigned rank, float a, float b) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(local));
  asm volatile(
      "{.reg .u32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
      "st.shared::cluster.v2.f32 [remote], {%2, %3};}" ::"r"(address),
      "r"(rank), "f"(a), "f"(b)
      : "memory");
}

// Of a kernel launched with `programmatic`: until the kernels in front of it have ended and what
// they wrote can be seen.
__device__ __forceinline__ void WaitForKernelsInFront() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel, if it is `programmatic`, may begin where there is room.
__device__ __forceinline__ void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace norms
