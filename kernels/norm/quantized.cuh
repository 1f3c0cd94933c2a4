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
inline constexpr unsigned kInfinityBits = 0x7f800000u;

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

// `most` are bits of a magnitude; threads of a warp call it together.
__device__ __forceinline__ void KeepLargest(unsigned most, float* amax) {
  most = LargestOfLanes<32>(most);
  if (most > kInfinityBits) most = 0x7fc00000u;  // one NaN for all
  if (threadIdx.x % 32 == 0 && most != 0) atomicMax(reinterpret_cast<unsigned*>(amax), most);
}

// VEC codes of f * by, at element `at` of q.
template <typename Q, int VEC>
__device__ __forceinline__ void StoreCodes(unsigned char* q, int64 at, const float (&f)[VEC],
                                           float by) {
  unsigned word[VEC / 4];
#pragma unroll
  for (int i = 0; i < VEC / 4; ++i) {
    word[i] = Fp8<Q>::Pack(f[4 * i] * by, f[4 * i + 1] * by) |
              Fp8<Q>::Pack(f[4 * i + 2] * by, f[4 * i + 3] * by) << 16;
  }
  if constexpr (VEC == 8) {
    *reinterpret_cast<uint2*>(q + at) = {word[0], word[1]};
  } else {
    Store4(q + at, word[0]);
  }
}

// The codes of a row whose d is in v, as in WriteRow; `most` grows to the largest magnitude of y.
template <typename Q, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void WriteCodes(const ForwardCall<T>& call, const Codes& to, int64 row,
                                           const float (&v)[N][VEC], const Moments& m, int left,
                                           const Team& team, unsigned& most) {
  constexpr int kLanes = kGroup / VEC;
  const int rank = team.rank(), size = team.size();
  const Weights<T> gamma(call.gamma, rank * VEC, call.wide, call.center);
  const Weights<T> beta(call.beta, rank * VEC, call.wide, 0.0f);
  const float less = (m.offset - m.mine) * m.inverse;
  const int across = (call.H + kGroup - 1) / kGroup;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool there = i * size < left;  // the lanes of a group go on together
    float y[VEC] = {}, b[VEC] = {};
    if (there) {
      gamma.template Load<false>(y, i * size);
      if (call.beta != nullptr) beta.template Load<false>(b, i * size);
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
    if (there) StoreCodes<Q>(to.q, row * call.H + (rank + i * size) * VEC, y, scale);
  }
}

template <int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void QuantizedRows(const ForwardCall<T>& call, const Codes& to,
                                              Team team, int block, int blocks) {
  if (to.scale != nullptr && block == 0 && threadIdx.x == 0) *to.scale_inv = 1.0f / *to.scale;
  unsigned most = 0;
  for (int64 row = block; row < call.rows; row += blocks) {
    const int left = call.H / VEC - team.rank();
    float v[N][VEC];
    LoadRow<false, VEC, N>(v, call, row, left, team);
    const Moments m = MomentsOf<true>(v, call, row, left, team);
    OfType(to.e5m2, [&]<typename Q>() { WriteCodes<Q>(call, to, row, v, m, left, team, most); });
    if (team.rank() != 0) continue;
    call.rsigma[row] = m.Rsigma();
    if (call.mu != nullptr) call.mu[row] = m.Mu();
  }
  if (to.scale != nullptr) KeepLargest(most, to.amax);
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
  unsigned most = 0;
  for (int64 at = block; at < call.rows; at += blocks) {
    const LongRow<T> row{call, at * call.H};
    const Moments m = LongMomentsOf(row, team);
    OfType(to.e5m2, [&]<typename Q>() { WriteLongCodes<Q>(row, at, to, m, team, most); });
    if (team.rank() != 0) continue;
    call.rsigma[at] = m.Rsigma();
    if (call.mu != nullptr) call.mu[at] = m.Mu();
  }
  if (to.scale != nullptr) KeepLargest(most, to.amax);
}

}  // namespace norms
