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

// Of gelu, whose 0.5 x (1 + tanh u) is x sigmoid(2 u): 2 u is 1.5957691216 (x + 0.044715 x^3), and
// the power of 2 that is e^-2u has both factors in its polynomial.
__device__ __forceinline__ float SigmoidOfGelu(float x) {
  using namespace kbundle::device;
  return Reciprocal(1.0f + Exp2(x * (-0.1029432396f * x * x - 2.3022081987f)));
}

__device__ __forceinline__ float Activated(const Activation& how, float x) {
  if (how.function == kGelu) return x * SigmoidOfGelu(x);
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

// Calls use.template operator()<function>(): each function's code knows which it is.
template <typename Use>
__device__ __forceinline__ void OfFunction(int function, const Use& use) {
  if (function == kGelu) {
    use.template operator()<kGelu>();
  } else if (function == kSilu) {
    use.template operator()<kSilu>();
  } else if (function == kRelu) {
    use.template operator()<kRelu>();
  } else if (function == kSquaredRelu) {
    use.template operator()<kSquaredRelu>();
  } else {
    use.template operator()<kClampedSilu>();
  }
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
  // What f is taken of, or the gate, as a tensor of its own.
  __device__ __forceinline__ Plain<T, VEC, LOOSE> Half(int half) const {
    return {x.From(half * N), gated ? 2 * N : N};
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

// ---- element by element ----

// Where rows begin anywhere and no transpose is wanted, putting vectors together costs more than it
// saves: lanes beside one another read and write neighbours. A thread has kAlone columns, a block's
// threads apart, of kAlone rows at once. Nothing asks whether it is inside: what would be beyond
// the last row or column is done once more there, to the same bytes.
inline constexpr int kAlone = 4, kAloneRows = 32, kAloneColumns = kAlone * kThreads;  // of a block

// N is kAloneColumns at least, M 1.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    activation_alone(unsigned char* q, float* largest, float* scale_inv, const T* x,
                     const float* scale, int64 M, int64 N, bool gated, int function, float limit,
                     float alpha, float offset, unsigned across, bool e5m2) {
  using Bits = typename Element<T>::Bits;
  constexpr int kCount = kAlone * kAlone;
  WaitForEarlierKernels();
  const float by = *scale;
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale_inv = 1.0f / by;
  const Activation how{function, limit, alpha, offset};
  const int64 column =
      min(blockIdx.x % across * int64{kAloneColumns}, N - kAloneColumns) + threadIdx.x;
  const int64 first = blockIdx.x / across * int64{kAloneRows}, end = min(M, first + kAloneRows);
  const int64 pitch = gated ? 2 * N : N;
  const Bits* from = reinterpret_cast<const Bits*>(x) + first * pitch + column;
  const Bits* gates = from + N;
  q += first * N + column;
  unsigned most = 0;
#pragma unroll 1
  for (int left = static_cast<int>(end - first); left > 0; left -= kAlone) {
    unsigned read[kCount], gate[kCount] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      read[i] = LoadBoth<Bits>(from + i % kAlone * kThreads);
      if (gated) gate[i] = LoadBoth<Bits>(gates + i % kAlone * kThreads);
      const int64 step = i % kAlone == kAlone - 1 && i / kAlone + 1 < left ? pitch : 0;
      from += step;
      gates += step;
    }
    float f[kCount];
    OfFunction(function, [&]<int FUNCTION>() {
      Activation known = how;
      known.function = FUNCTION;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        f[i] = Activated(known, Element<T>::Widen(read[i]));
        if (gated) f[i] *= Gate(known, Element<T>::Widen(gate[i]));
      }
    });
    most = Largest(most, f);
    OfType(e5m2, [&]<typename Q>() {
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        const unsigned two = Fp8<Q>::Pack(f[i] * by, f[i + 1] * by);
        q[i % kAlone * kThreads] = static_cast<unsigned char>(two);
        q[(i + 1) % kAlone * kThreads] = static_cast<unsigned char>(two >> 8);
        if (i % kAlone == kAlone - 2 && i / kAlone + 1 < left) q += N;
      }
    });
  }
  KeepLargest(most, largest);
}

}  // namespace quantize
