// Delayed scaling: a tensor's scale follows from the largest magnitudes of the steps before.
//
// A history of L steps is a ring that is moved by one each step: slot 0 waits for this step's amax,
// slot 1 is the oldest step, slot L - 1 the newest.
//
//   [now, oldest, a, b, newest]  ->  [0, a, b, newest, now]
#pragma once

#include "vector.cuh"

namespace quantize {

// A block for each tensor. The scale brings the largest of the history, or amax alone, to
// `most` / 2^margin; it stays where that largest is 0 or not finite.
__device__ __forceinline__ float NextScale(unsigned largest, float scale, float most, int margin) {
  if (largest == 0 || largest >= kInfinity) return scale;
  const float shift = __uint_as_float(static_cast<unsigned>(127 - margin) << 23);
  return fminf(most / __uint_as_float(largest) * shift, kHighestScale);
}

__global__ void __launch_bounds__(kThreads)
    update_scale(float* new_history, float* new_scale, float* scale_inv, const float* history,
                 const float* amax, const float* scale, int64 length, float most, int margin,
                 bool newest_alone) {
  const int64 tensor = blockIdx.x;
  const unsigned now = __float_as_uint(amax[tensor]);
  const float* from = history + tensor * length;
  float* to = new_history + tensor * length;
  unsigned largest = now & 0x7fffffffu;
  for (int64 i = threadIdx.x + 1; i < length; i += kThreads) {
    if (!newest_alone) largest = max(largest, __float_as_uint(from[i]) & 0x7fffffffu);
    if (i > 1) to[i - 1] = from[i];
  }
  largest = LargestOfBlock(largest);
  if (threadIdx.x != 0) return;
  to[length - 1] = __uint_as_float(now);
  to[0] = 0.0f;
  const float next = NextScale(largest, scale[tensor], most, margin);
  new_scale[tensor] = next;
  scale_inv[tensor] = 1.0f / next;
}

}  // namespace quantize
