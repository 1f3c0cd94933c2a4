// A team is the threads that share one row. All teams answer the same questions, so a kernel is
// written once:
//
//   Warp<LANES>     LANES threads of a warp; 128 / LANES rows per block
//   Block<MOST>     one block of whole warps, MOST threads at most: as many as the row needs
//   Cluster<MOST>   the blocks of a cluster, up to 8, which exchange floats through distributed
//                   shared memory
//
// Every thread of a block must make the same calls, but those of a team Alone. Sums are in an order
// that only the team decides, so the same row gives the same bits. Each cross-warp call uses the
// other half of its slots than the call before, so one barrier a call is enough.
#pragma once

#include "kbundle/device_lanes.h"
#include "row.cuh"

namespace norms {

template <int LANES>
__device__ __forceinline__ float LaneSum(float v, unsigned lanes = kAllLanes) {
#pragma unroll
  for (int d = LANES / 2; d > 0; d /= 2) v += __shfl_xor_sync(lanes, v, d);
  return v;
}

template <int LANES, bool kAlone = false>
class Warp {
 public:
  static constexpr bool kLoose = false;
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / LANES;  // of a block

  __device__ __forceinline__ explicit Warp(int) {}

  __device__ __forceinline__ static constexpr int size() { return LANES; }
  __device__ __forceinline__ static constexpr int blocks() { return 1; }  // of a row
  __device__ __forceinline__ int rank() const { return threadIdx.x % LANES; }
  __device__ __forceinline__ int row() const { return threadIdx.x / LANES; }

  // The team where those of other rows do something else: what a row needs is never its
  // neighbours' doing, or its bits would be too.
  __device__ __forceinline__ Warp<LANES, true> Alone() const { return Warp<LANES, true>(0); }

  template <int kCount>
  __device__ __forceinline__ void Sum(float (&v)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = LaneSum<LANES>(v[i], Lanes());
  }
  // See Block.
  __device__ __forceinline__ float Guess(float v) const {
    return __shfl_sync(kAllLanes, v, static_cast<int>(threadIdx.x) % 32 / LANES * LANES);
  }
  template <typename Count>
  __device__ __forceinline__ float SumAbout(float (&v)[2], float guess, const Count&) {
    Sum(v);
    return guess;
  }
  // Whether it is so of one of the warp's rows.
  __device__ __forceinline__ bool Any(bool v) const {
    return LANES == 32 ? v : __any_sync(kAllLanes, v);
  }

 private:
  __device__ __forceinline__ static unsigned Lanes() {
    return kAlone ? kbundle::device::LanesOfTeam<LANES>() : kAllLanes;
  }
};

template <int MOST>
class Block {
 public:
  static constexpr bool kLoose = false;  // see loose.cuh
  static constexpr int kThreads = MOST;
  static constexpr int kRows = 1;

  __device__ __forceinline__ explicit Block(int threads) : threads_(threads) {}

  __device__ __forceinline__ int size() const { return threads_; }
  __device__ __forceinline__ static constexpr int blocks() { return 1; }
  __device__ __forceinline__ int rank() const { return threadIdx.x; }
  __device__ __forceinline__ int row() const { return 0; }
  __device__ __forceinline__ bool Any(bool v) const { return v; }
  __device__ __forceinline__ Block& Alone() { return *this; }

  // What the sums of a thread are taken about: the same number for all of a warp, so that no warp
  // waits for another before it has summed.
  __device__ __forceinline__ float Guess(float v) const { return __shfl_sync(kAllLanes, v, 0); }

  // v = {squares of d, d} of this thread, d = x - guess; becomes that of all threads, about the
  // number that is returned. `count` says how many elements a warp has.
  template <typename Count>
  __device__ __forceinline__ float SumAbout(float (&v)[2], float guess, const Count& count) {
    __shared__ float slots[2][3 * kWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, from = lane % kSlots;
    half_ ^= 1;
    v[0] = LaneSum<32>(v[0]);
    v[1] = LaneSum<32>(v[1]);
    if (lane == 0) {
      slots[half_][warp] = v[0];
      slots[half_][kWarps + warp] = v[1];
      slots[half_][2 * kWarps + warp] = guess;
    }
    const float elements = static_cast<float>(count(from));
    __syncthreads();
    const float common = slots[half_][2 * kWarps];
    const bool there = from < threads_ / 32;
    const float squares = there ? slots[half_][from] : 0.0f;
    const float sum = there ? slots[half_][kWarps + from] : 0.0f;
    const float more = there ? slots[half_][2 * kWarps + from] - common : 0.0f;
    const float moved = __fmaf_rn(elements, more, sum);
    v[0] = LaneSum<kSlots>(__fmaf_rn(more, sum + moved, squares));
    v[1] = LaneSum<kSlots>(moved);
    return common;
  }

  template <int kCount>
  __device__ __forceinline__ void Sum(float (&v)[kCount]) {
    static_assert(kCount <= 2, "slots are for two");
    __shared__ float slots[2][2 * kWarps];
    const int lane = threadIdx.x % 32;
    half_ ^= 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      v[i] = LaneSum<32>(v[i]);
      if (lane == 0) slots[half_][i * kWarps + threadIdx.x / 32] = v[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      v[i] = LaneSum<kSlots>(
          lane % kSlots < threads_ / 32 ? slots[half_][i * kWarps + lane % kSlots] : 0.0f);
  }

 protected:
  int threads_;

 private:
  static constexpr int kWarps = MOST / 32;
  static constexpr int kSlots = kWarps <= 8 ? 8 : kWarps <= 16 ? 16 : 32;
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
  __device__ __forceinline__ Cluster& Alone() { return *this; }
  __device__ __forceinline__ int rank() const { return cta_ * this->threads_ + threadIdx.x; }

  // One number for the whole cluster. Between two calls lies a Sum.
  __device__ __forceinline__ float Guess(float v) const {
    __shared__ float2 first;
    __shared__ float mine;
    if (threadIdx.x == 0) mine = v;
    __syncthreads();
    if (cta_ == 0 && threadIdx.x < ctas_) StoreRemote(&first, threadIdx.x, mine, 0.0f);
    ClusterBarrier();
    return first.x;
  }
  template <typename Count>
  __device__ __forceinline__ float SumAbout(float (&v)[2], float guess, const Count&) {
    Sum(v);
    return guess;
  }

  template <int kCount>
  __device__ __forceinline__ void Sum(float (&v)[kCount]) {
    Block<MOST>::Sum(v);
    __shared__ float2 slots[2][kMostBlocks];
    half_ ^= 1;
    if (threadIdx.x < ctas_)
      StoreRemote(&slots[half_][cta_], threadIdx.x, v[0], kCount > 1 ? v[kCount - 1] : 0.0f);
    ClusterBarrier();
    float2 all = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kMostBlocks; ++i) {
      if (i >= ctas_) continue;
      all.x += slots[half_][i].x;
      all.y += slots[half_][i].y;
    }
    v[0] = all.x;
    if constexpr (kCount > 1) v[1] = all.y;
  }

 private:
  static constexpr int kMostBlocks = 8;  // larger clusters are not portable

  int cta_, ctas_;
  int half_ = 0;
};

}  // namespace norms
