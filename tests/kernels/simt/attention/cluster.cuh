// kernels/attention/cluster.cuh as simt/machine.h runs it, a block after another: at the cluster's
// barrier a block leaves its shared memory to the others. So the blocks of a cluster run twice, and
// what the first round reads of those behind is of no account.
#pragma once

#include <vector>

#include "kernels/simt/ptx.cuh"

namespace attention {

inline unsigned cluster_rank = 0;
inline std::vector<std::vector<unsigned char>> cluster_memory(1);  // of each block

inline unsigned ClusterRank() { return cluster_rank; }
inline unsigned ClusterSize() { return static_cast<unsigned>(cluster_memory.size()); }
inline void ClusterBarrier() {
  __syncthreads();
  auto& memory = cluster_memory[cluster_rank];
  if (threadIdx.x == 0) std::memcpy(memory.data(), SharedAt(0), memory.size());
  __syncthreads();
}
template <typename T>
inline T LoadRemote(unsigned address, int rank) {
  T value;
  std::memcpy(&value, cluster_memory[rank].data() + address, sizeof(T));
  return value;
}
inline float2 LoadRemote8(unsigned address, int rank) { return LoadRemote<float2>(address, rank); }
inline float4 LoadRemote16(unsigned address, int rank) { return LoadRemote<float4>(address, rank); }

}  // namespace attention
