// An activation in front of the codes: y = f(x[:, 0, :]), or f(x[:, 0, :]) * x[:, 1, :] of a gate,
// in float32, which never lies in memory.
#pragma once

#include "transpose.cuh"

namespace quantize {

enum Function { kGelu, kSilu, kRelu, kSquaredRelu, kClampedSilu };

// kClampedSilu alone has numbers of its own: m * sigmoid(alpha * m) with m = min(x, limit), times a
// gate within limit and moved by offset.
struct Activation {
  int function;
  float limit, alpha, offset;
};

// 1 / (1 + e^-t); 0 and 1 far out.
__device__ __forceinline__ float Sigmoid(float t) {
  using namespace kbundle::device;
  return Reciprocal(1.0f + Exp2(-t * kLog2e));
}

__device__ __forceinline__ float Activated(const Activation& how, float x) {
  // 0.5 x (1 + tanh u) is x sigmoid(2 u).
  if (how.function == kGelu) return x * Sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
  if (how.function == kSilu) return x * Sigmoid(x);
  if (how.function == kClampedSilu) {
    const float m = x > how.limit ? how.limit : x;
    return m * Sigmoid(how.alpha * m);
  }
  const float positive = x < 0.0f ? 0.0f : x;
  return how.function == kRelu ? positive : positive * positive;
}

__device__ __forceinline__ float Gate(const Activation& how, float g) {
  if (how.function != kClampedSilu) return g;
  const float above = g < -how.limit ? -how.limit : g;
  return (above > how.limit ? how.limit : above) + how.offset;
}

// Elements [M, N] that an activation makes of x [M, N] or, gated, [M, 2, N].
template <typename T, int VEC, bool LOOSE = false>
struct Activating {
  using V = Vector<T, VEC>;
  using In = Elements<T, VEC, LOOSE>;
  struct Loaded {
    typename In::Loaded x, gate;
  };
  struct Raw {
    typename V::Raw x, gate;
  };
  static constexpr bool kLoose = LOOSE;
  In x;
  int64 N;
  bool gated;
  Activation how;

  __device__ __forceinline__ Activating(const T* x, int64 M, int64 N, bool gated,
                                        const Activation& how)
      : x(x, (gated ? 2 * M : M) * N), N(N), gated(gated), how(how) {}
  __device__ __forceinline__ Loaded Load(int64 row, int64 column, int left) const {
    Loaded loaded{};
    const int64 at = (gated ? 2 * row : row) * N + column;
    loaded.x = x.Load(at, left);
    if (gated) loaded.gate = x.Load(at + N, left);
    return loaded;
  }
  __device__ static __forceinline__ Raw Whole(const Loaded& loaded, const typename In::Kept& kept) {
    return {In::Whole(loaded.x, kept), In::Whole(loaded.gate, kept)};
  }
  __device__ __forceinline__ Activating From(int64 row, int64 column) const {
    Activating there = *this;
    there.x = x.From((gated ? 2 * row : row) * N + column);
    return there;
  }
  __device__ __forceinline__ void Widen(const Raw& raw, float (&f)[VEC]) const {
    V::Widen(raw.x, f);
#pragma unroll
    for (int i = 0; i < VEC; ++i) f[i] = Activated(how, f[i]);
    if (!gated) return;
    float g[VEC];
    V::Widen(raw.gate, g);
#pragma unroll
    for (int i = 0; i < VEC; ++i) f[i] *= Gate(how, g[i]);
  }
};

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, 1)
    activation(unsigned char* q, unsigned char* q_t, float* largest, float* scale_inv, const T* x,
               const float* scale, int64 M, int64 N, bool gated, int function, float limit,
               float alpha, float offset, int tiles, bool e5m2) {
  __shared__ TransposedTile tile[2];
  constexpr int kVec = kTaken<T, VEC>;
  const TiledResult to{q, q_t, largest, scale_inv, nullptr, tile};
  const Activation how{function, limit, alpha, offset};
  const Activating<T, kVec, VEC == 1> source(x, M, N, gated, how);
  QuantizeTiles<kVec>(source, to, scale, M, tiles, e5m2);
}

}  // namespace quantize
