// More of what CUDA has by itself, as machine.h runs it: grids, votes, matches and atomics.
#pragma once

#include "machine.h"

#define __global__ inline
#define __launch_bounds__(...)

namespace simt {
inline Index block_size = {128, 1, 1}, grid_size = {1, 1, 1};
}  // namespace simt

#define blockDim (simt::block_size)
#define gridDim (simt::grid_size)

inline void __syncwarp() { simt::Block::Now().MeetWarp(); }

inline unsigned __match_any_sync(unsigned, int value) {
  const int* all = simt::Block::Now().Exchange(value);
  unsigned same = 0;
  for (int i = 0; i < 32; ++i) same |= (all[i] == value ? 1u : 0u) << i;
  return same;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }

inline int atomicAdd(int* to, int value) {
  const int before = *to;
  *to += value;
  return before;
}
