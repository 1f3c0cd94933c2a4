// kernels/include/kbundle/device_bulk.h as simt/machine.h runs it. What is asked for arrives, or
// leaves, when it is waited for, or at once where the block's copies are early.
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

inline void CheckAligned(const BulkCopy& copy) {
  const size_t all = reinterpret_cast<size_t>(copy.to) | reinterpret_cast<size_t>(copy.from);
  EXPECT_EQ((all | copy.bytes) % 16, 0u) << "a copy that is not aligned";
}

struct BarrierState {
  unsigned ended = 0;  // phases
  bool expects = false;
  unsigned awaited = 0, asked = 0;
  std::vector<BulkCopy> copies;

  void EndIfAllIsHere() {
    if (!expects || asked != awaited) return;
    for (const BulkCopy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
    copies.clear();
    expects = false, awaited = asked = 0;
    ++ended;
  }
};

inline std::map<const ByteBarrier*, BarrierState> barriers;

inline void InitBarrier(ByteBarrier* barrier) { barriers[barrier] = {}; }
inline void FenceBarriers() {}
inline void FenceCopies() {}

inline void Expect(ByteBarrier* barrier, unsigned bytes) {
  BarrierState& state = barriers.at(barrier);
  EXPECT_FALSE(state.expects) << "a phase begins before the last has ended";
  state.expects = true, state.awaited = bytes;
}

inline void BulkLoad(void* to, const void* from, unsigned bytes, ByteBarrier* barrier) {
  CheckAligned({to, from, bytes});
  EXPECT_TRUE(simt::Block::Now().MayRead(from, bytes)) << "a copy from outside the tensors";
  BarrierState& state = barriers.at(barrier);
  state.copies.push_back({to, from, bytes});
  state.asked += bytes;
  if (simt::Block::Now().copies() == simt::Copies::kEarly) state.EndIfAllIsHere();
}

// What each thread has asked for and not awaited.
inline std::multimap<unsigned, BulkCopy> stores;

inline void BulkStore(void* to, const void* from, unsigned bytes) {
  CheckAligned({to, from, bytes});
  if (simt::Block::Now().copies() == simt::Copies::kEarly) {
    std::memcpy(to, from, bytes);
  } else {
    stores.insert({threadIdx.x, {to, from, bytes}});
  }
}

inline void AwaitStores() {
  const auto [first, end] = stores.equal_range(threadIdx.x);
  for (auto it = first; it != end; ++it)
    std::memcpy(it->second.to, it->second.from, it->second.bytes);
  stores.erase(first, end);
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
