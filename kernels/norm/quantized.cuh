// Norms whose y goes to FP8 codes as it is made: by one scale that is given, where the largest
// magnitude of y is found for the next step's, or by a scale for each 128 elements of a row.
//
// A group of 128 is 16 lanes of 8 elements or 32 of 4, beside one another in a warp, since every
// vector of a thread is a multiple of 32 vectors from its first.
#pragma once

#include "forward_long.cuh"
#include "kbundle/device_fp8.h"

namespace norms {

using kbundle::device::BlockScale;
using kbundle::device::Fp8;
using kbundle::device::Largest;
using kbundle::device::LargestOfLanes;
using kbundle::device::OfType;

inline constexpr int kGroup = 128;

// Where codes go, and by what scale.
struct Codes {
  unsigned char* q;
  float* amax;         // of y, with a scale; began as 0
  float* scale_inv;    // with a scale
  float* groups;       // without: [rows, groups of a row]
  const float* scale;  // or null
  BlockScale by;
  bool e5m2;
};

// The largest magnitude of y so far, as its bits.
class Amax {
 public:
  // What others have found is asked while there is nothing to wait for: nearly all that is found
  // later is smaller, and goes nowhere.
  __device__ __forceinline__ explicit Amax(float* amax)
      : amax_(reinterpret_cast<unsigned*>(amax)),
        seen_(amax == nullptr ? 0u : *static_cast<volatile unsigned*>(amax_)) {}

  // Threads of a warp call it together.
  __device__ __forceinline__ void Keep(unsigned most) const {
    if (amax_ == nullptr) return;
    most = LargestOfLanes<32>(most);
    if (most > kInfinityBits) most = kNanBits;  // one NaN for all
    if (threadIdx.x % 32 == 0 && most > seen_) atomicMax(amax_, most);
  }

 private:
  static constexpr unsigned kInfinityBits = 0x7f800000u, kNanBits = 0x7fc00000u;

  unsigned* amax_;  // null without a scale
  unsigned seen_;
};

// VEC codes of f * by, at element `at` of q. kStream: they leave L2 first, which gains where rows
// follow one another in a block, and loses where blocks come and go.
template <typename Q, bool kStream, int VEC>
__device__ __forceinline__ void StoreCodes(unsigned char* q, int64 at, const float (&f)[VEC],
                                           float by) {
  unsigned word[VEC / 4];
#pragma unroll
  for (int i = 0; i < VEC / 4; ++i) {
    word[i] = Fp8<Q>::Pack(f[4 * i] * by, f[4 * i + 1] * by) |
              Fp8<Q>::Pack(f[4 * i + 2] * by, f[4 * i + 3] * by) << 16;
  }
  if constexpr (kStream && VEC == 8) {
    StoreStream8(q + at, word[0], word[1]);
  } else if constexpr (kStream) {
    StoreStream4(q + at, word[0]);
  } else if constexpr (VEC == 8) {
    *reinterpret_cast<uint2*>(q + at) = {word[0], word[1]};
  } else {
    Store4(q + at, word[0]);
  }
}

// The codes of a row of any call.
template <typename Q, bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void WriteCodes(const ForwardCall<T>& call, const Codes& to, int64 row,
                                           const float (&v)[N][VEC], const Moments& m, int left,
                                           const Team& team, unsigned& most) {
  constexpr int kLanes = kGroup / VEC;
  const int rank = team.rank(), size = team.size();
  const Weights<T> gamma(call.gamma, rank * VEC, call.wide, call.center);
  const Weights<T> beta(call.beta, rank * VEC, call.wide, 0.0f);
  const float less = kLayer ? (m.offset - m.mine) * m.inverse : 0.0f;
  const int across = (call.H + kGroup - 1) / kGroup;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool there = i * size < left;  // the lanes of a group go on together
    float y[VEC] = {}, b[VEC] = {};
    if (there) {
      gamma.template Load<false>(y, i * size);
      if (kLayer && call.beta != nullptr) beta.template Load<false>(b, i * size);
#pragma unroll
      for (int j = 0; j < VEC; ++j)
        y[j] = __fmaf_rn(__fmaf_rn(v[i][j], m.inverse, -less), y[j], b[j]);
    }
    const unsigned own = Largest(0u, y);
    float scale;
    if (to.scale != nullptr) {
      most = max(most, own);
      scale = *to.scale;
    } else {
      const float inverse = to.by.Inverse(LargestOfLanes<kLanes>(own), Fp8<Q>::kMost);
      scale = 1.0f / inverse;
      if (there && threadIdx.x % kLanes == 0)
        to.groups[row * across + (rank + i * size) / kLanes] = inverse;
    }
    if (there) StoreCodes<Q, false>(to.q, row * call.H + (rank + i * size) * VEC, y, scale);
  }
}

template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void QuantizedRows(const ForwardCall<T>& call, const Codes& to,
                                              Team team, int block, int blocks) {
  if (to.scale != nullptr && block == 0 && threadIdx.x == 0) *to.scale_inv = 1.0f / *to.scale;
  const Amax amax(to.scale == nullptr ? nullptr : to.amax);
  unsigned most = 0;
  for (int64 row = block; row < call.rows; row += blocks) {
    const int left = call.H / VEC - team.rank();
    float v[N][VEC];
    LoadRow<false, VEC, N>(v, call, row, left, team);
    const Moments m = MomentsOf<kLayer>(v, call, row, left, team);
    OfType(to.e5m2,
           [&]<typename Q>() { WriteCodes<Q, kLayer>(call, to, row, v, m, left, team, most); });
    if (team.rank() != 0) continue;
    call.rsigma[row] = m.Rsigma();
    if (call.mu != nullptr) call.mu[row] = m.Mu();
  }
  amax.Keep(most);
  LetNextKernelStart();
}

// The same of a row of any length and alignment: a warp takes groups of it, four elements a lane.
template <typename Q, typename Team, typename T>
__device__ __forceinline__ void WriteLongCodes(const LongRow<T>& row, int64 number, const Codes& to,
                                               const Moments& m, const Team& team, unsigned& most) {
  const ForwardCall<T>& call = row.call;
  const Weights<T> gamma(call.gamma, 0, call.wide, call.center);
  const Weights<T> beta(call.beta, 0, call.wide, 0.0f);
  const int across = (call.H + kGroup - 1) / kGroup, lane = team.rank() % 32;
  for (int group = team.rank() / 32; group < across; group += team.size() / 32) {
    float y[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = group * kGroup + i * 32 + lane;
      if (column >= call.H) continue;
      const float x = row.At(column);
      float g[1], b[1] = {0.0f};
      gamma.template Load<false>(g, column);
      if (call.beta != nullptr) beta.template Load<false>(b, column);
      y[i] = __fmaf_rn((m.Centered(x) - m.offset) * m.inverse, g[0], b[0]);
      if (call.residual != nullptr) kbundle::device::StoreOne<T>(call.sum, row.start + column, x);
    }
    const unsigned own = Largest(0u, y);
    float scale;
    if (to.scale != nullptr) {
      most = max(most, own);
      scale = *to.scale;
    } else {
      const float inverse = to.by.Inverse(LargestOfLanes<32>(own), Fp8<Q>::kMost);
      scale = 1.0f / inverse;
      if (lane == 0) to.groups[number * across + group] = inverse;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = group * kGroup + i * 32 + lane;
      if (column < call.H)
        to.q[row.start + column] =
            static_cast<unsigned char>(Fp8<Q>::Pack(y[i] * scale, 0.0f) & 0xffu);
    }
  }
}

template <typename Team, typename T>
__device__ __forceinline__ void QuantizedLongRows(const ForwardCall<T>& call, const Codes& to,
                                                  Team team, int block, int blocks) {
  if (to.scale != nullptr && block == 0 && threadIdx.x == 0) *to.scale_inv = 1.0f / *to.scale;
  const Amax amax(to.scale == nullptr ? nullptr : to.amax);
  unsigned most = 0;
  for (int64 at = block; at < call.rows; at += blocks) {
    const LongRow<T> row{call, at * call.H};
    const Moments m = LongMomentsOf(row, team);
    OfType(to.e5m2, [&]<typename Q>() { WriteLongCodes<Q>(row, at, to, m, team, most); });
    if (team.rank() != 0) continue;
    call.rsigma[at] = m.Rsigma();
    if (call.mu != nullptr) call.mu[at] = m.Mu();
  }
  amax.Keep(most);
  LetNextKernelStart();
}

}  // namespace norms
