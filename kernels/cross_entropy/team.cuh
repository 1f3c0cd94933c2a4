// A team is the threads that share one row. All teams answer the same questions, so a kernel is
// written once:
//
//   Warp<LANES>     LANES threads of a warp; 128 / LANES rows per block
//   Block<MOST>     one block of whole warps, MOST threads at most
//   Cluster<MOST>   the blocks of a cluster, up to 8, which exchange floats through distributed
//                   shared memory
//
// Every thread of a block must make the same calls. Results are in an order that only the team
// decides, so the same row gives the same bits. Each call across warps uses the other half of its
// slots than the call before, so one barrier a call is enough. What a thread read before a call,
// the others may overwrite behind it.
#pragma once

#include "row.cuh"

namespace loss {

struct Sum {
  __device__ __forceinline__ static float Of(float a, float b) { return a + b; }
  static constexpr bool kMax = false;
};
struct Max {
  __device__ __forceinline__ static float Of(float a, float b) { return fmaxf(a, b); }
  static constexpr bool kMax = true;
};

template <int LANES, typename How>
__device__ __forceinline__ float OverLanes(float v) {
#pragma unroll
  for (int d = LANES / 2; d > 0; d /= 2) v = How::Of(v, __shfl_xor_sync(kAllLanes, v, d));
  return v;
}

template <int LANES>
class Warp {
 public:
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / LANES;  // of a block

  __device__ __forceinline__ explicit Warp(int) {}

  __device__ __forceinline__ static constexpr int size() { return LANES; }
  __device__ __forceinline__ static constexpr int blocks() { return 1; }  // of a row
  __device__ __forceinline__ int rank() const { return threadIdx.x % LANES; }
  __device__ __forceinline__ int row() const { return threadIdx.x / LANES; }

  template <typename How, int kCount>
  __device__ __forceinline__ void All(float (&v)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = OverLanes<LANES, How>(v[i]);
    OrderWarp();
  }
};

template <int MOST>
class Block {
 public:
  static constexpr int kThreads = MOST;
  static constexpr int kRows = 1;
  static constexpr int kMostValues = 4;

  __device__ __forceinline__ explicit Block(int threads) : threads_(threads) {}

  __device__ __forceinline__ int size() const { return threads_; }
  __device__ __forceinline__ static constexpr int blocks() { return 1; }
  __device__ __forceinline__ int rank() const { return threadIdx.x; }
  __device__ __forceinline__ int row() const { return 0; }

  template <typename How, int kCount>
  __device__ __forceinline__ void All(float (&v)[kCount]) {
    static_assert(kCount <= kMostValues, "slots are for so many");
    __shared__ float slots[2][kMostValues * kWarps];
    const int lane = threadIdx.x % 32;
    half_ ^= 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      v[i] = OverLanes<32, How>(v[i]);
      if (lane == 0) slots[half_][i * kWarps + threadIdx.x / 32] = v[i];
    }
    __syncthreads();
    const float none = How::kMax ? -Infinity() : 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      v[i] = OverLanes<32, How>(lane < threads_ / 32 ? slots[half_][i * kWarps + lane] : none);
  }

 protected:
  int threads_;

 private:
  static constexpr int kWarps = MOST / 32;
  static_assert(MOST % 32 == 0 && kWarps <= 32, "a lane for each warp");

  int half_ = 0;
};

template <int MOST>
class Cluster : public Block<MOST> {
 public:
  __device__ __forceinline__ explicit Cluster(int threads)
      : Block<MOST>(threads), cta_(ClusterRank()), ctas_(ClusterSize()) {
    ClusterBarrier();  // the shared memory of a block may be written only once the block runs
  }

  __device__ __forceinline__ int size() const { return ctas_ * this->threads_; }
  __device__ __forceinline__ int blocks() const { return ctas_; }
  __device__ __forceinline__ int rank() const { return cta_ * this->threads_ + threadIdx.x; }

  template <typename How, int kCount>
  __device__ __forceinline__ void All(float (&v)[kCount]) {
    constexpr int kPairs = (kCount + 1) / 2;
    Block<MOST>::template All<How>(v);
    __shared__ float2 slots[2][Block<MOST>::kMostValues / 2][kMostBlocks];
    half_ ^= 1;
    if (threadIdx.x < ctas_) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i)
        StoreRemote(&slots[half_][i][cta_], threadIdx.x, v[2 * i],
                    v[2 * i + 1 < kCount ? 2 * i + 1 : 2 * i]);
    }
    ClusterBarrier();
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float2 all = slots[half_][i][0];
#pragma unroll
      for (int block = 1; block < kMostBlocks; ++block) {
        if (block >= ctas_) continue;
        all.x = How::Of(all.x, slots[half_][i][block].x);
        all.y = How::Of(all.y, slots[half_][i][block].y);
      }
      v[2 * i] = all.x;
      if (2 * i + 1 < kCount) v[2 * i + 1] = all.y;
    }
  }

 private:
  static constexpr int kMostBlocks = 8;  // larger clusters are not portable

  unsigned cta_, ctas_;
  int half_ = 0;
};

}  // namespace loss
