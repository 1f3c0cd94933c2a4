// A team is the threads that share one row. All teams answer the same questions, so a kernel is
// written once:
//
//   Warp<LANES>            LANES threads of a warp; 128 / LANES rows per block
//   Block<THREADS>         one block
//   Cluster<THREADS, CTAS> the blocks of a cluster, which exchange two floats through distributed
//   shared memory
//
// Max, Sum are over the threads that see each other cheaply (for a cluster: over one block);
// Exchange joins the blocks of a cluster and is the identity elsewhere. Every thread of a block
// must make the same calls, but those of a team Alone. Each cross-warp call uses the other half of
// its slots than the call before, so one barrier a call is enough.
#pragma once

#include "kbundle/device_lanes.h"
#include "vector.cuh"

namespace softmax {

// A sum kept as hi + lo, accurate to about 2^-45 of the sum of magnitudes.
struct Pair {
  float hi, lo;
};

__device__ __forceinline__ Pair Add(Pair a, float b) {
  const float sum = __fadd_rn(a.hi, b);
  const float part = __fsub_rn(sum, a.hi);
  const float error = __fadd_rn(__fsub_rn(a.hi, __fsub_rn(sum, part)), __fsub_rn(b, part));
  return {sum, __fadd_rn(a.lo, error)};
}

__device__ __forceinline__ Pair Add(Pair a, Pair b) {
  Pair sum = Add(a, b.hi);
  sum.lo = __fadd_rn(sum.lo, b.lo);
  return sum;
}

// NaN must not come in. A whole warp takes one instruction on integers that are ordered as the
// floats are.
template <int LANES>
__device__ __forceinline__ float WarpMax(float v, unsigned lanes = kAllLanes) {
#if __CUDA_ARCH__ >= 800
  if constexpr (LANES == 32) {
    const int bits = __float_as_int(v);
    const int max = __reduce_max_sync(kAllLanes, bits ^ ((bits >> 31) & 0x7fffffff));
    return __int_as_float(max ^ ((max >> 31) & 0x7fffffff));
  } else
#endif
  {
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(lanes, v, d));
    return v;
  }
}

template <int LANES>
__device__ __forceinline__ float WarpSum(float v, unsigned lanes = kAllLanes) {
#pragma unroll
  for (int d = LANES / 2; d > 0; d /= 2) v += __shfl_xor_sync(lanes, v, d);
  return v;
}

template <int LANES>
__device__ __forceinline__ Pair WarpSum(Pair v, unsigned lanes = kAllLanes) {
#pragma unroll
  for (int d = LANES / 2; d > 0; d /= 2) {
    const Pair other = {__shfl_xor_sync(lanes, v.hi, d), __shfl_xor_sync(lanes, v.lo, d)};
    v = Add(v, other);
  }
  return v;
}

template <int LANES, bool kAlone = false>
class Warp {
 public:
  static constexpr int kThreads = 128;
  static constexpr int kSize = LANES;
  static constexpr int kRows = kThreads / LANES;  // of a block
  static constexpr int kBlocks = 1;               // of a row

  __device__ __forceinline__ int rank() const { return threadIdx.x % LANES; }
  __device__ __forceinline__ int row() const { return threadIdx.x / LANES; }
  // The team where those of other rows do something else: what a row needs is never its
  // neighbours' doing, or its bits would be too.
  __device__ __forceinline__ Warp<LANES, true> Alone() const { return {}; }
  __device__ __forceinline__ float Max(float v) { return WarpMax<LANES>(v, Lanes()); }
  __device__ __forceinline__ float Sum(float v) { return WarpSum<LANES>(v, Lanes()); }
  __device__ __forceinline__ Pair Sum(Pair v) { return WarpSum<LANES>(v, Lanes()); }

 private:
  __device__ __forceinline__ static unsigned Lanes() {
    return kAlone ? kbundle::device::LanesOfTeam<LANES>() : kAllLanes;
  }
};

template <int THREADS>
class Block {
 public:
  static constexpr int kThreads = THREADS;
  static constexpr int kSize = THREADS;
  static constexpr int kRows = 1;
  static constexpr int kBlocks = 1;

  __device__ __forceinline__ int rank() const { return threadIdx.x; }
  __device__ __forceinline__ int row() const { return 0; }

  __device__ __forceinline__ Block& Alone() { return *this; }

  __device__ __forceinline__ float Max(float v) {
    float* slots = Slots();
    v = WarpMax<32>(v);
    if (Lane() == 0) slots[threadIdx.x / 32] = v;
    __syncthreads();
    return WarpMax<32>(slots[Lane() % kWarps]);
  }

  __device__ __forceinline__ float Sum(float v) {
    float* slots = Slots();
    v = WarpSum<32>(v);
    if (Lane() == 0) slots[threadIdx.x / 32] = v;
    __syncthreads();
    float part[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kWarps; ++i) part[i % 4] += slots[i];
    return (part[0] + part[1]) + (part[2] + part[3]);
  }

  __device__ __forceinline__ Pair Sum(Pair v) {
    float* slots = Slots();
    v = WarpSum<32>(v);
    if (Lane() == 0) {
      slots[threadIdx.x / 32] = v.hi;
      slots[kWarps + threadIdx.x / 32] = v.lo;
    }
    __syncthreads();
    const int i = Lane() % kWarps;
    return WarpSum<kWarps>(Pair{slots[i], slots[kWarps + i]});
  }

 private:
  static constexpr int kWarps = THREADS / 32;
  static_assert(kWarps >= 1 && kWarps <= 32 && (kWarps & (kWarps - 1)) == 0,
                "a power of two of warps");

  __device__ __forceinline__ int Lane() const { return threadIdx.x % 32; }
  __device__ __forceinline__ float* Slots() {
    __shared__ __align__(16) float slots[2][2 * kWarps];
    half_ ^= 1;
    return slots[half_];
  }

  int half_ = 0;
};

template <int THREADS, int CTAS>
class Cluster : public Block<THREADS> {
 public:
  static constexpr int kSize = THREADS * CTAS;
  static constexpr int kBlocks = CTAS;
  static_assert(CTAS <= 8, "larger clusters are not portable");

  __device__ __forceinline__ Cluster() : cta_(ClusterRank()) {
    ClusterBarrier();  // the shared memory of a block may be written only once the block runs
  }

  __device__ __forceinline__ int rank() const { return cta_ * THREADS + threadIdx.x; }

  // Gives v of every block of the cluster to every thread. v must be uniform in the block.
  __device__ __forceinline__ void Exchange(Pair v, Pair (&all)[CTAS]) {
    __shared__ float2 slots[2][CTAS];
    half_ ^= 1;
    if (threadIdx.x < CTAS) StoreRemote(&slots[half_][cta_], threadIdx.x, v.hi, v.lo);
    ClusterBarrier();
#pragma unroll
    for (int i = 0; i < CTAS; ++i) {
      const float2 slot = slots[half_][i];
      all[i] = {slot.x, slot.y};
    }
  }

  __device__ __forceinline__ Pair Sum(Pair v) {
    Pair all[CTAS];
    Exchange(Block<THREADS>::Sum(v), all);
    Pair sum = all[0];
#pragma unroll
    for (int i = 1; i < CTAS; ++i) sum = Add(sum, all[i]);
    return sum;
  }

  using Block<THREADS>::Sum;

 private:
  unsigned cta_;
  int half_ = 0;
};

// The rows of a grid: `for (RowLoop<Team> at(rows); at.more(); at.next())`. The loop is uniform in
// a block; rows past the end are the empty row.
template <typename Team>
class RowLoop {
 public:
  __device__ __forceinline__ explicit RowLoop(int64 rows)
      : rows_(rows), base_(int64{blockIdx.x / Team::kBlocks} * Team::kRows) {}
  __device__ __forceinline__ bool more() const { return base_ < rows_; }
  __device__ __forceinline__ void next() {
    base_ += int64{gridDim.x / Team::kBlocks} * Team::kRows;
  }
  __device__ __forceinline__ int64 row(const Team& team) const { return base_ + team.row(); }

 private:
  int64 rows_;
  int64 base_;
};

}  // namespace softmax
