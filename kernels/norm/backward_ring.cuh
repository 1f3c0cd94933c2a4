// Backward norms whose rows come through a ring: while a row is worked on, the next ones are on
// their way to shared memory and hold no registers. Registers instead keep n and g of a row (see
// backward.cuh) from its sums to its dx, where they are few enough.
#pragma once

#include "backward.cuh"
#include "ring.cuh"

namespace norms {

// The mean and rsigma of a row, asked for while the row before it is worked on.
struct RowMoments {
  float mu = 0, rsigma = 0;

  template <bool kLayer, typename T>
  __device__ __forceinline__ void Load(const BackwardCall<T>& call, int64 row) {
    if (row >= call.rows) return;
    rsigma = call.rsigma[row];
    if (kLayer && call.mu != nullptr) mu = call.mu[row];
  }
};

// gamma of a thread's columns: in registers, or read for every row.
template <bool kKeep, int VEC, int N, typename T>
struct HeldWeights {
  Weights<T> all;
  float kept[kKeep ? N : 1][VEC];

  __device__ __forceinline__ HeldWeights(const BackwardCall<T>& call, int rank, int size, int left)
      : all(call.gamma, rank * VEC, call.wide, call.center) {
    if constexpr (kKeep) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i * size < left) all.template Load<false>(kept[i], i * size);
    }
  }
  __device__ __forceinline__ void Get(float (&g)[VEC], int i, int size) const {
    if constexpr (kKeep) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) g[j] = kept[i][j];
    } else {
      all.template Load<false>(g, i * size);
    }
  }
};

// dy, n and g of a vector of the row that the ring holds, whose parts are given; g comes with gamma
// in it.
template <typename T, int VEC>
__device__ __forceinline__ void TakeVector(const unsigned char* dys, const unsigned char* xs,
                                           const RowMoments& m, int index, float (&dy)[VEC],
                                           float (&normal)[VEC], float (&g)[VEC]) {
  Vector<T, VEC> raw;
  raw.LoadShared(dys, index);
  raw.ToFloats(dy);
  raw.LoadShared(xs, index);
  raw.ToFloats(normal);
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    normal[j] = (normal[j] - m.mu) * m.rsigma;
    g[j] = __fmul_rn(dy[j], g[j]);
  }
}

template <bool kLayer, int VEC, int N, typename Team, typename T>
__device__ __forceinline__ void BackwardRing(const BackwardCall<T>& call, Team team,
                                             unsigned char* slots, ByteBarrier* full, int stages,
                                             int part, int parts) {
  constexpr bool kKeep = N * VEC <= 16;
  LetNextKernelStart();
  Ring<T, VEC == 1> ring(slots, full, stages, call.H, call.rows, part, parts, call.dy, call.x,
                         call.dsum);
  const int rank = team.rank(), size = team.size(), left = call.H / VEC - rank;
  const HeldWeights<kKeep, VEC, N, T> gamma(call, rank, size, left);
  float dgamma[N][VEC] = {}, dbeta[N][VEC] = {};
  const float inverse_h = kbundle::device::Reciprocal(static_cast<float>(call.H));
  const float inverse_of_g = call.mu == nullptr ? 0.0f : inverse_h;
  RowMoments m, next;
  next.Load<kLayer>(call, part);
  for (int64 row = part; row < call.rows; row += parts) {
    m = next;
    next.Load<kLayer>(call, row + parts);
    float dy[VEC], normal[kKeep ? N : 1][VEC], g[kKeep ? N : 1][VEC];
    float means[kLayer ? 2 : 1] = {};
    ring.Wait();
    const unsigned char *const dys = ring.Row(0, row), *const xs = ring.Row(1, row);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i * size >= left) continue;
      const int k = kKeep ? i : 0;
      gamma.Get(g[k], i, size);
      TakeVector<T>(dys, xs, m, rank + i * size, dy, normal[k], g[k]);
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        means[0] = __fmaf_rn(g[k][j], normal[k][j], means[0]);
        dgamma[i][j] = __fmaf_rn(dy[j], normal[k][j], dgamma[i][j]);
        if constexpr (kLayer) {
          means[1] += g[k][j];
          dbeta[i][j] += dy[j];
        }
      }
    }
    team.Sum(means);
    ring.Met(row, !kKeep || call.dsum != nullptr);
    means[0] *= inverse_h;
    if constexpr (kLayer) means[1] *= inverse_of_g;
    T* const dx = Advance(call.dx, row * call.H + rank * VEC);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i * size >= left) continue;
      const int k = kKeep ? i : 0;
      if constexpr (!kKeep) {
        gamma.Get(g[k], i, size);
        TakeVector<T>(dys, xs, m, rank + i * size, dy, normal[k], g[k]);
      }
      float more[VEC] = {};
      Vector<T, VEC> out;
      if (call.dsum != nullptr) {
        out.LoadShared(ring.Row(2, row), rank + i * size);
        out.ToFloats(more);
      }
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        if constexpr (kLayer) g[k][j] -= means[1];
        g[k][j] = __fmaf_rn(m.rsigma, __fmaf_rn(-normal[k][j], means[0], g[k][j]), more[j]);
      }
      out.FromFloats(g[k]);
      out.Store(dx, i * size);
    }
    ring.Next();
  }
  WritePart(call.partial + int64{part} * call.H, call.H, dgamma, team);
  if (kLayer && call.mu != nullptr)
    WritePart(call.partial + (int64{parts} + part) * call.H, call.H, dbeta, team);
}

}  // namespace norms
