// Kernels that begin before the one in front of them has ended (`programmatic` in a manifest), on
// sm_90 and later GPUs; elsewhere nothing. For CUDA kernels.
#pragma once

namespace kbundle {
namespace device {

// Until the kernels in front have ended and what they wrote can be seen. Every block must call it,
// or the next kernel might not wait for those either.
__device__ __forceinline__ void WaitForEarlierKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel, if it is `programmatic`, may begin where there is room.
__device__ __forceinline__ void LetNextKernelStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace device
}  // namespace kbundle
