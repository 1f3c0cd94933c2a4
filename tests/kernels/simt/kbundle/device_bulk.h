// kernels/include/kbundle/device_bulk.h as simt/machine.h runs it. What is asked for arrives when
// it is waited for, or at once where the block's copies are early.
#pragma once

#include <map>

#include "../machine.h"

namespace kbundle {
namespace device {

using ByteBarrier = unsigned long long;

struct BulkCopy {
  void* to;
  const void* from;
  unsigned bytes;
};

struct BarrierState {
  unsigned ended = 0;  // phases
  unsigned awaited = 0, asked = 0;
  std::vector<BulkCopy> copies;

  void EndIfAllIsHere() {
    if (awaited == 0 || asked != awaited) return;
    for (const BulkCopy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
    copies.clear();
    awaited = asked = 0;
    ++ended;
  }
};

inline std::map<const ByteBarrier*, BarrierState> barriers;

inline void InitBarrier(ByteBarrier* barrier) { barriers[barrier] = {}; }
inline void FenceBarriers() {}
inline void FenceCopies() {}

inline void Expect(ByteBarrier* barrier, unsigned bytes) {
  BarrierState& state = barriers.at(barrier);
  EXPECT_EQ(state.awaited, 0u) << "a phase begins before the last has ended";
  state.awaited = bytes;
}

inline void BulkLoad(void* to, const void* from, unsigned bytes, ByteBarrier* barrier) {
  EXPECT_TRUE(reinterpret_cast<size_t>(to) % 16 == 0 && reinterpret_cast<size_t>(from) % 16 == 0 &&
              bytes % 16 == 0)
      << "a copy that is not aligned";
  EXPECT_TRUE(simt::Block::Now().MayRead(from, bytes)) << "a copy from outside the tensors";
  BarrierState& state = barriers.at(barrier);
  state.copies.push_back({to, from, bytes});
  state.asked += bytes;
  if (simt::Block::Now().copies() == simt::Copies::kEarly) state.EndIfAllIsHere();
}

inline void Await(ByteBarrier* barrier, unsigned parity) {
  BarrierState& state = barriers.at(barrier);
  while (state.ended % 2 == parity) {
    state.EndIfAllIsHere();
    if (state.ended % 2 == parity) simt::Block::Now().Pause();
  }
}

}  // namespace device
}  // namespace kbundle
