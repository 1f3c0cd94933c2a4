// What blocks of a cluster read of each other.
#pragma once

#include "kbundle/device_cluster.h"
#include "ptx.cuh"

namespace attention {

using kbundle::device::ClusterBarrier;
using kbundle::device::ClusterRank;
using kbundle::device::ClusterSize;

// Where block `rank` of the cluster has what this one has at `address` of its shared memory.
__device__ __forceinline__ unsigned RemoteAddress(unsigned address, int rank) {
  unsigned remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
__device__ __forceinline__ float2 LoadRemote8(unsigned address, int rank) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(v.x), "=f"(v.y)
               : "r"(RemoteAddress(address, rank)));
  return v;
}
__device__ __forceinline__ float4 LoadRemote16(unsigned address, int rank) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(RemoteAddress(address, rank)));
  return v;
}

}  // namespace attention
