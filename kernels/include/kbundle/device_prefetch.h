// Hints about what will be read, for CUDA kernels.
#pragma once

namespace kbundle {
namespace device {

// Asks for the 32 bytes around an address to be in the L2 cache soon. The instruction that asks
// for many bytes takes one address of a warp: with 32 it would be a loop.
__device__ __forceinline__ void PrefetchSector(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

}  // namespace device
}  // namespace kbundle
