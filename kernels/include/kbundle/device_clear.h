// A float that the next kernel adds to, or keeps the largest in, begins as 0. For CUDA kernels.
//
// In place of a memset, behind which no kernel starts early: both it and the next one are
// `programmatic`, and the next is there by the time that this ends. It must wait (device_order.h)
// before it touches anything: this one has waited for what is in front of both.
#pragma once

#include "kbundle/device_order.h"

namespace kbundle {
namespace device {

// One thread.
__device__ __forceinline__ void ClearForNextKernel(float* to) {
  LetNextKernelStart();
  WaitForEarlierKernels();
  *to = 0.0f;
}

}  // namespace device
}  // namespace kbundle
