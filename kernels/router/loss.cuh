// The auxiliary loss that keeps experts evenly busy.
//
// loss = C * sum over tokens and experts of probs * tokens_per_expert. The rows are cut into parts
// whose number depends on the problem alone; parts are added in their order, so that the bits are
// the same in every run, with no atomics.
#pragma once

#include "kbundle/device_order.h"
#include "row.cuh"

namespace router {

// coefficient * E / (k * total^2).
__device__ __forceinline__ double LossFactor(float coefficient, int E, int64 k, int64 total) {
  const double t = static_cast<double>(total);
  return total == 0 ? 0.0 : static_cast<double>(coefficient) * E / (static_cast<double>(k) * t * t);
}

template <int VEC>
__device__ __forceinline__ void LoadInts(unsigned (&values)[VEC], const int* p) {
  if constexpr (VEC == 1) {
    values[0] = static_cast<unsigned>(*p);
  } else {
#pragma unroll
    for (int i = 0; i < VEC; i += 4) {
      const uint4 w = *reinterpret_cast<const uint4*>(p + i);
      values[i] = w.x;
      values[i + 1] = w.y;
      values[i + 2] = w.z;
      values[i + 3] = w.w;
    }
  }
}

// partial[part] for a block each; a warp takes every 8th row of its part.
template <typename P, int VEC>
__global__ void __launch_bounds__(256, 2)
    aux_loss_parts(float* partial, const P* probs, const int* tokens_per_expert, int E,
                   int64 tokens, int parts) {
  __shared__ float sums[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64 begin = tokens * blockIdx.x / parts, end = tokens * (blockIdx.x + 1) / parts;
  float sum = 0;
  for (int64 token = begin + warp; token < end; token += 8) {
    EachVector<P, VEC>(Advance(probs, token * E), E, lane, [&](const float(&p)[VEC], int first) {
      unsigned busy[VEC];
      LoadInts<VEC>(busy, tokens_per_expert + first);
#pragma unroll
      for (int j = 0; j < VEC; ++j)
        sum = __fmaf_rn(p[j], static_cast<float>(static_cast<int>(busy[j])), sum);
    });
  }
  sum = WarpSum(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < 8; ++i) total += sums[i];
    partial[blockIdx.x] = total;
  }
}

// One warp.
__global__ void aux_loss_sum(float* loss, const float* partial, float coefficient, int E, int64 k,
                             int64 total_tokens, int parts) {
  const int lane = threadIdx.x % 32;
  double sum = 0;
  kbundle::device::WaitForEarlierKernels();
  for (int part = lane; part < parts; part += 32) sum += static_cast<double>(partial[part]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (lane == 0) *loss = static_cast<float>(sum * LossFactor(coefficient, E, k, total_tokens));
}

}  // namespace router
