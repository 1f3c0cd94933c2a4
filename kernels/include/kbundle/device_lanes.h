// Lanes of a warp that work on one thing, where a warp has several.
#pragma once

#include "kbundle/device_element.h"

namespace kbundle {
namespace device {

// For exchanges among the LANES of this thread's team while the others may do something else.
template <int LANES>
__device__ __forceinline__ unsigned LanesOfTeam() {
  return kAllLanes >> (32 - LANES) << threadIdx.x % 32 / LANES * LANES;
}

}  // namespace device
}  // namespace kbundle
