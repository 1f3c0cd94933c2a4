// Kernels of the softmax ops. The manifest, softmax.toml, says which instances exist and where each
// is legal.
//
// T is float, __half or __nv_bfloat16; VEC elements travel together: 16 bytes, or one element where
// pointers are not aligned. A row is at most VEC * N * Team::kSize elements long, or of any length
// in the *_long kernels, which read it twice. Rows are int64; every grid is clamped by the manifest
// and walked by a loop.
//
// Rows whose length is no multiple of VEC are mostly not aligned, although their tensor is. Kernels
// of kRows == kShifted take them. kEither decides once per launch, for kernels that are not worth
// two instances.
#include "backward.cuh"
#include "forward.cuh"
#include "logits.cuh"
#include "team.cuh"
#include "vector.cuh"

namespace softmax {

enum Rows { kAligned, kShifted, kEither };

// How much of a causal row is kept: row q of its K x K image keeps q + 1 elements.
__device__ __forceinline__ int CausalLength(int64 row, int K) {
  if ((row >> 32) == 0)
    return static_cast<int>(static_cast<unsigned>(row) % static_cast<unsigned>(K)) + 1;
  return static_cast<int>(row % K) + 1;
}

// The span of row `row`, which is empty past the last row.
template <bool kIsShifted, bool kCausal, int VEC>
__device__ __forceinline__ Span PlainSpan(int64 row, int64 rows, int K) {
  if (row >= rows) return {0, 0, 0, 0};
  return SpanOf<kIsShifted, VEC>(row, rows, K, kCausal ? CausalLength(row, K) : K);
}

// Runs loop.Run<shifted>() with the compile-time answer to whether vectors may stick out of rows.
template <Rows kRows, int VEC, typename Loop>
__device__ __forceinline__ void RunRows(int K, const Loop& loop) {
  if constexpr (kRows == kAligned || VEC == 1) {
    loop.template Run<false>();
  } else if constexpr (kRows == kShifted) {
    loop.template Run<true>();
  } else if (K % VEC == 0) {
    loop.template Run<false>();
  } else {
    loop.template Run<true>();
  }
}

// The loops over rows. kLong says which of the two ways a row is done in.
template <bool kLong, bool kCausal, int VEC, int N, typename Team, typename T>
struct ForwardLoop {
  T* y;
  const T* x;
  float scale;
  int64 rows;
  int K;

  template <bool kIsShifted>
  __device__ __forceinline__ void Run() const {
    Team team;
    const PlainLogits<T, VEC> logits(scale);
    for (RowLoop<Team> at(rows); at.more(); at.next()) {
      const int64 row = at.row(team);
      const Span span = PlainSpan<kIsShifted, kCausal, VEC>(row, rows, K);
      T* const to = Advance(y, row * K - span.first);
      const T* const from = Advance(x, row * K - span.first);
      if constexpr (kLong) {
        ForwardLongRow<kIsShifted, kCausal, VEC, N>(to, from, span, team, logits);
      } else {
        ForwardRow<kIsShifted, kCausal, VEC, N>(to, from, span, team, logits);
      }
    }
  }
};

template <bool kLong, bool kCausal, int VEC, int N, typename Team, typename T>
struct BackwardLoop {
  T* dx;
  const T* dy;
  const T* y;
  float scale;
  int64 rows;
  int K;

  template <bool kIsShifted>
  __device__ __forceinline__ void Run() const {
    Team team;
    for (RowLoop<Team> at(rows); at.more(); at.next()) {
      const int64 row = at.row(team);
      const Span span = PlainSpan<kIsShifted, kCausal, VEC>(row, rows, K);
      const int64 begin = row * K - span.first;
      T* const to = Advance(dx, begin);
      if constexpr (kLong) {
        BackwardLongRow<kIsShifted, kCausal, VEC, N>(to, Advance(dy, begin), Advance(y, begin),
                                                     span, team, scale);
      } else {
        BackwardRow<kIsShifted, kCausal, VEC, N>(to, Advance(dy, begin), Advance(y, begin), span,
                                                 team, scale);
      }
    }
  }
};

// The grid is (rows of an image, heads, batches), so that no thread divides to find its mask.
template <bool kLong, int VEC, int N, typename Team, typename T>
struct MaskedLoop {
  T* y;
  const T* x;
  const unsigned char* mask;
  float scale;
  int B, H;
  int64 Q;
  int K;
  int64 batch_stride, head_stride;  // in rows of the mask; 0 where it is broadcast

  template <bool kIsShifted>
  __device__ __forceinline__ void Run() const {
    Team team;
    MaskedLogits<T, VEC> logits(scale);
    KeptLogits<T, VEC> kept(scale);
    const int64 rows = int64{B} * H * Q;
    for (int b = blockIdx.z; b < B; b += gridDim.z) {
      for (int h = blockIdx.y; h < H; h += gridDim.y) {
        for (RowLoop<Team> at(Q); at.more(); at.next()) {
          const int64 q = at.row(team);
          const int64 row = (int64{b} * H + h) * Q + q;
          const Span span = PlainSpan<kIsShifted, false, VEC>(q < Q ? row : rows, rows, K);
          T* const to = Advance(y, row * K - span.first);
          const T* const from = Advance(x, row * K - span.first);
          logits.mask = mask + (b * batch_stride + h * head_stride + q) * K;
          if constexpr (kLong) {
            ForwardLongRow<kIsShifted, false, VEC, N>(to, from, span, team, logits);
          } else if constexpr (Team::kBlocks > 1) {
            ForwardRow<kIsShifted, false, VEC, N>(to, from, span, team, logits);
          } else {
            kept.mask = logits.mask;
            if (!ForwardRow<kIsShifted, false, VEC, N>(to, from, span, team, kept)) {
              // One vector at a time: this rare path must not cost the other one registers.
              auto&& alone = team.Alone();
              ForwardLongRow<kIsShifted, false, VEC, 1>(to, from, span, alone, logits);
            }
          }
        }
      }
    }
  }
};

}  // namespace softmax

using softmax::Block;
using softmax::Cluster;
using softmax::int64;
using softmax::kAligned;
using softmax::kEither;
using softmax::kShifted;
using softmax::Rows;
using softmax::Warp;

// The minimum of one block per multiprocessor lets the compiler take the registers it needs; with
// its own guess it spills a few of them.
#define SOFTMAX_KERNEL __global__ void __launch_bounds__(Team::kThreads, 1)

template <typename T, int VEC, int N, typename Team, Rows kRows = kAligned>
SOFTMAX_KERNEL scaled_forward(T* __restrict__ y, const T* __restrict__ x, float scale, int64 rows,
                              int K) {
  softmax::RunRows<kRows, VEC>(
      K, softmax::ForwardLoop<false, false, VEC, N, Team, T>{y, x, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team>
SOFTMAX_KERNEL scaled_forward_long(T* __restrict__ y, const T* __restrict__ x, float scale,
                                   int64 rows, int K) {
  softmax::RunRows<kEither, VEC>(
      K, softmax::ForwardLoop<true, false, VEC, N, Team, T>{y, x, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team, Rows kRows = kAligned>
SOFTMAX_KERNEL scaled_causal_forward(T* __restrict__ y, const T* __restrict__ x, float scale,
                                     int64 rows, int K) {
  softmax::RunRows<kRows, VEC>(
      K, softmax::ForwardLoop<false, true, VEC, N, Team, T>{y, x, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team>
SOFTMAX_KERNEL scaled_causal_forward_long(T* __restrict__ y, const T* __restrict__ x, float scale,
                                          int64 rows, int K) {
  softmax::RunRows<kEither, VEC>(
      K, softmax::ForwardLoop<true, true, VEC, N, Team, T>{y, x, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team, Rows kRows = kAligned>
SOFTMAX_KERNEL scaled_backward(T* __restrict__ dx, const T* __restrict__ dy,
                               const T* __restrict__ y, float scale, int64 rows, int K) {
  softmax::RunRows<kRows, VEC>(
      K, softmax::BackwardLoop<false, false, VEC, N, Team, T>{dx, dy, y, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team>
SOFTMAX_KERNEL scaled_backward_long(T* __restrict__ dx, const T* __restrict__ dy,
                                    const T* __restrict__ y, float scale, int64 rows, int K) {
  softmax::RunRows<kEither, VEC>(
      K, softmax::BackwardLoop<true, false, VEC, N, Team, T>{dx, dy, y, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team, Rows kRows = kAligned>
SOFTMAX_KERNEL scaled_causal_backward(T* __restrict__ dx, const T* __restrict__ dy,
                                      const T* __restrict__ y, float scale, int64 rows, int K) {
  softmax::RunRows<kRows, VEC>(
      K, softmax::BackwardLoop<false, true, VEC, N, Team, T>{dx, dy, y, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team>
SOFTMAX_KERNEL scaled_causal_backward_long(T* __restrict__ dx, const T* __restrict__ dy,
                                           const T* __restrict__ y, float scale, int64 rows,
                                           int K) {
  softmax::RunRows<kEither, VEC>(
      K, softmax::BackwardLoop<true, true, VEC, N, Team, T>{dx, dy, y, scale, rows, K});
}

template <typename T, int VEC, int N, typename Team, Rows kRows = kAligned>
SOFTMAX_KERNEL scaled_masked_forward(T* __restrict__ y, const T* __restrict__ x,
                                     const unsigned char* __restrict__ mask, float scale, int B,
                                     int H, int64 Q, int K, int64 batch_stride, int64 head_stride) {
  softmax::RunRows<kRows, VEC>(K, softmax::MaskedLoop<false, VEC, N, Team, T>{
                                      y, x, mask, scale, B, H, Q, K, batch_stride, head_stride});
}

template <typename T, int VEC, int N, typename Team>
SOFTMAX_KERNEL scaled_masked_forward_long(T* __restrict__ y, const T* __restrict__ x,
                                          const unsigned char* __restrict__ mask, float scale,
                                          int B, int H, int64 Q, int K, int64 batch_stride,
                                          int64 head_stride) {
  softmax::RunRows<kEither, VEC>(K, softmax::MaskedLoop<true, VEC, N, Team, T>{
                                        y, x, mask, scale, B, H, Q, K, batch_stride, head_stride});
}
