// A float that the next kernel adds to, or keeps the largest in, begins as 0. For CUDA kernels.
//
// In place of a memset, behind which no kernel starts early: the next one, `programmatic`, is there
// by the time that this ends. It reads what kernels before this one wrote, which have ended, but
// must wait (device_order.h) before it touches the float.
#pragma once

#include "kbundle/device_order.h"

namespace kbundle {
namespace device {

// One thread.
__device__ __forceinline__ void ClearForNextKernel(float* to) {
  LetNextKernelStart();
  *to = 0.0f;
}

}  // namespace device
}  // namespace kbundle
