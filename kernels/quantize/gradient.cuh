// The gradient by what an activation was made of, in FP8: of y = f(x[:, 0, :]), with a gate times
// x[:, 1, :], and of dy it is dz = dy * f'(x), or with a gate the planes
//
//   dz[:, 0, :] = dy * f'(x[:, 0, :]) * gate      dz[:, 1, :] = dy * f(x[:, 0, :]) * gate'
//
// computed in float32, which never lies in memory: a thread reads dy and x once, and has 4 rows of
// VEC columns of each plane, whose codes cross a tile of that plane's own in shared memory.
#pragma once

#include "activation.cuh"

namespace quantize {

// What an activation makes of one number, and how fast it grows there.
struct Tangent {
  float y, slope;
};

// Of x s, where s is the sigmoid of a number that grows by `speed`. Far out that number may be as
// large as it likes, and x too: s is 0 or 1 and grows no more.
__device__ __forceinline__ Tangent TangentOfSigmoid(float x, float s, float speed) {
  const float growth = s - s * s;
  return {x * s, growth == 0.0f ? s : s + x * growth * speed};
}

template <int FUNCTION>
__device__ __forceinline__ Tangent TangentAt(const Activation& how, float x) {
  if constexpr (FUNCTION == kGelu) {
    return TangentOfSigmoid(x, SigmoidOfGelu(x), 1.5957691216f + 0.2140644488f * x * x);
  } else if constexpr (FUNCTION == kSilu) {
    return TangentOfSigmoid(x, Sigmoid(x), 1.0f);
  } else if constexpr (FUNCTION == kClampedSilu) {
    const float m = x > how.limit ? how.limit : x;
    const Tangent at = TangentOfSigmoid(m, Sigmoid(how.alpha * m), how.alpha);
    return {at.y, x > how.limit ? 0.0f : at.slope};
  } else {
    const float positive = x < 0.0f ? 0.0f : x;
    if constexpr (FUNCTION == kRelu) return {positive, x > 0.0f ? 1.0f : 0.0f};
    return {positive * positive, 2.0f * positive};
  }
}

// The gate of g, and how fast it grows there.
template <int FUNCTION>
__device__ __forceinline__ Tangent GateAt(const Activation& how, float g) {
  if constexpr (FUNCTION == kClampedSilu)
    return {Gate(how, g), g < -how.limit || g > how.limit ? 0.0f : 1.0f};
  else
    return {g, 1.0f};
}

// Elements [M, PLANES, N] of the gradient, of dy [M, N] and x [M, PLANES, N].
template <typename T, int VEC, int PLANES, bool LOOSE = false>
struct Differentiating {
  using V = Vector<T, VEC>;
  using In = Elements<T, VEC, LOOSE>;
  struct Loaded {
    typename In::Loaded dy, x[PLANES];
  };
  struct Raw {
    typename V::Raw dy, x[PLANES];
  };
  static constexpr bool kLoose = LOOSE;
  In dy, x;
  int64 N;
  Activation how;

  __device__ __forceinline__ Differentiating(const T* dy, const T* x, int64 M, int64 N,
                                             const Activation& how)
      : dy(dy, M * N), x(x, M * PLANES * N), N(N), how(how) {}
  __device__ __forceinline__ Loaded Load(int64 row, int64 column, int left) const {
    Loaded loaded;
    loaded.dy = dy.Load(row * N + column, left);
#pragma unroll
    for (int p = 0; p < PLANES; ++p) loaded.x[p] = x.Load((row * PLANES + p) * N + column, left);
    return loaded;
  }
  __device__ static __forceinline__ Raw Whole(const Loaded& loaded, const typename In::Kept& kept) {
    Raw raw;
    raw.dy = In::Whole(loaded.dy, kept);
#pragma unroll
    for (int p = 0; p < PLANES; ++p) raw.x[p] = In::Whole(loaded.x[p], kept);
    return raw;
  }
  __device__ __forceinline__ Differentiating From(int64 row, int64 column) const {
    Differentiating there = *this;
    there.dy = dy.From(row * N + column);
    there.x = x.From(row * PLANES * N + column);
    return there;
  }

  template <int FUNCTION>
  __device__ __forceinline__ void Widen(const Raw& raw, float (&dz)[PLANES][VEC]) const {
    float dy[VEC], x[PLANES][VEC];
    V::Widen(raw.dy, dy);
#pragma unroll
    for (int p = 0; p < PLANES; ++p) V::Widen(raw.x[p], x[p]);
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      const Tangent at = TangentAt<FUNCTION>(how, x[0][i]);
      dz[0][i] = dy[i] * at.slope;
      if constexpr (PLANES == 2) {
        const Tangent gate = GateAt<FUNCTION>(how, x[1][i]);
        dz[0][i] *= gate.y;
        dz[1][i] = dy[i] * at.y * gate.slope;
      }
    }
  }
};

// ROWS rows of the gradient, from `row` on, become codes of each plane, from codes[..][first] on.
template <int ROWS, typename T, int VEC, int PLANES, bool LOOSE>
__device__ __forceinline__ void QuantizeGradientRows(
    const Differentiating<T, VEC, PLANES, LOOSE>& source, int64 row, int64 column, int left,
    int64 there, float by, bool e5m2, int first, CodeWords<VEC> (&codes)[PLANES][kMicroRows],
    Found<VEC> (&found)[PLANES]) {
  typename Differentiating<T, VEC, PLANES, LOOSE>::Raw raw[ROWS];
  LoadRows(source, row, column, left, there, raw);
  OfFunction(source.how.function, [&]<int FUNCTION>() {
    OfType(e5m2, [&]<typename Q>() {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        float dz[PLANES][VEC];
        source.template Widen<FUNCTION>(raw[r], dz);
#pragma unroll
        for (int p = 0; p < PLANES; ++p) {
          found[p].most = Largest(found[p].most, dz[p]);
#pragma unroll
          for (int i = 0; i < VEC; ++i) found[p].sum[i] += dz[p][i];
          Codes<Q, VEC> made;
          made.Of(dz[p], by);
          codes[p][first + r] = made;
        }
      }
    });
  });
}

// How many blocks a multiprocessor has at once, for which registers must do. On Hopper they just
// do; elsewhere, and where FP8 is arithmetic, which wants some too, a block takes what it needs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr int kBlocksAtOnce = 2;
#else
inline constexpr int kBlocksAtOnce = 1;
#endif

template <typename T, int VEC, int PLANES>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    activation_gradient(unsigned char* q, unsigned char* q_t, float* largest, float* scale_inv,
                        float* partial, const T* dy, const T* x, const float* scale, int64 M,
                        int64 N, int function, float limit, float alpha, float offset, int tiles,
                        bool e5m2) {
  constexpr int kVec = kTaken<T, VEC>;
  // At once: their vectors, or twice as many where they lie anywhere, fill registers.
  constexpr int kRows = VEC == 1 ? 2 / PLANES : kMicroRows / PLANES;
  __shared__ TransposedTile tile[2 * PLANES];
  const Activation how{function, limit, alpha, offset};
  const Differentiating<T, kVec, PLANES, VEC == 1> source(dy, x, M, N, how);
  WaitForEarlierKernels();
  const float by = *scale;
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale_inv = 1.0f / by;
  const BlockTiles at(M, N, tiles);
  Found<kVec> found[PLANES];
  ForTiles<kVec, PLANES>(at, q_t, tile, [&](int64 row, int64 column, auto& codes) {
    const int left = LeftOf(N, column);
    const int64 there = left > 0 ? M - row : 0;
#pragma unroll
    for (int first = 0; first < kMicroRows; first += kRows)
      QuantizeGradientRows<kRows>(source, row + first, column, left, there - first, by, e5m2, first,
                                  codes, found);
#pragma unroll
    for (int p = 0; p < PLANES; ++p)
      StoreRows<VEC == 1>(codes[p], q ? q + (row * PLANES + p) * N + column : q, PLANES * N, left,
                          there);
  });
  unsigned most = found[0].most;
  if constexpr (PLANES == 2) most = max(most, found[1].most);
  KeepLargest(most, largest);
  if (!partial || M == 0) return;
#pragma unroll
  for (int p = 0; p < PLANES; ++p) {
    if (p > 0) __syncthreads();  // the sums before are read
    SumColumns(found[p].sum, partial + (int64{at.part} * PLANES + p) * N + at.n0, at.columns);
  }
}

}  // namespace quantize
