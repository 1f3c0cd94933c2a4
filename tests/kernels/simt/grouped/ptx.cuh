// kernels/grouped/ptx.cuh as machine.h runs it: the same functions, without a GPU. Those that the
// attention kernels have too are theirs.
#pragma once

#include "kbundle/device_element.h"
#include "kernels/simt/ptx.cuh"

namespace grouped {

using attention::CommitCopies;
using attention::CopyAsync16;
using attention::LoadMatrices;
using attention::LoadTransposed;
using attention::Multiply;
using attention::SharedAddress;
using attention::StoreShared16;
using attention::WaitCopiesBut;
using kbundle::device::Element;
using kbundle::device::int64;

inline uint4 LoadOnce16(const void* from) {
  EXPECT_TRUE(simt::Block::Now().MayRead(from, 16)) << "16 bytes from outside the tensors";
  return *static_cast<const uint4*>(from);
}

}  // namespace grouped
