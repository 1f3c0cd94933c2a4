// The few instructions of the softmax kernels that C++ does not name.
//
// A tensor is read once and written once, and is far larger than the caches. Loads of a forward
// pass do not allocate in L1, and stores are marked evict-first so that they do not push out what
// is read again (a mask shared by the heads of a batch). Measured on an H200, both hints are worth
// a few per cent; a backward pass, which reads two tensors, is faster with plain loads.
#pragma once

#include "kbundle/device_cluster.h"
#include "kbundle/device_memory.h"

namespace softmax {

using kbundle::device::ClusterBarrier;
using kbundle::device::ClusterRank;
using kbundle::device::Forget;
using kbundle::device::Load1;
using kbundle::device::Load16;
using kbundle::device::Load2;
using kbundle::device::Load4;
using kbundle::device::Load8;
using kbundle::device::LoadStream16;
using kbundle::device::Store2;
using kbundle::device::Store4;
using kbundle::device::StoreRemote;
using kbundle::device::StoreStream16;
using kbundle::device::Words2;
using kbundle::device::Words4;

// Four bytes, each filled with the top bit of the byte of `word` that its digit of `select` names
// (8 more than the byte's number).
__device__ __forceinline__ unsigned WidenTops(unsigned word, unsigned select) {
  unsigned bytes;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(bytes) : "r"(word), "r"(select));
  return bytes;
}

}  // namespace softmax
