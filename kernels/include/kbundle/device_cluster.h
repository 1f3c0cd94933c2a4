// Blocks of a cluster, which sm_90 and later GPUs have. For CUDA kernels.
#pragma once

namespace kbundle {
namespace device {

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

// The same in two halves: what a block does between them waits for nobody.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
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

}  // namespace device
}  // namespace kbundle
