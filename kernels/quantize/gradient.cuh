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
    const float s = Sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
    return TangentOfSigmoid(x, s, 1.5957691216f + 0.2140644488f * x * x);
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
template <typename T, int VEC, int PLANES>
struct Differentiating {
  using V = Vector<T, VEC>;
  struct Raw {
    typename V::Raw dy, x[PLANES];
  };
  const T *dy, *x;
  int64 N;
  Activation how;

  __device__ __forceinline__ Raw Load(int64 row, int64 column) const {
    Raw raw;
    raw.dy = V::LoadFrom(dy, row * N + column);
#pragma unroll
    for (int p = 0; p < PLANES; ++p) raw.x[p] = V::LoadFrom(x, (row * PLANES + p) * N + column);
    return raw;
  }
  __device__ __forceinline__ Differentiating From(int64 row, int64 column) const {
    return {Behind(dy, row * N + column), Behind(x, row * PLANES * N + column), N, how};
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

// ROWS rows of the gradient, from `row` on, become codes of each plane, from codes[..][first] on.
template <int ROWS, typename Q, typename T, int VEC, int PLANES>
__device__ __forceinline__ void QuantizeGradientRows(const Differentiating<T, VEC, PLANES>& source,
                                                     int64 row, int64 column, int64 M, float by,
                                                     void* q, int first,
                                                     Codes<Q, VEC> (&codes)[PLANES][kMicroRows],
                                                     Found<Q, VEC> (&found)[PLANES]) {
  typename Differentiating<T, VEC, PLANES>::Raw raw[ROWS];
  const int64 there = column < source.N ? M - row : 0;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    raw[r] = {};
    if (r < there) raw[r] = source.Load(row + r, column);
  }
  OfFunction(source.how.function, [&]<int FUNCTION>() {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float dz[PLANES][VEC];
      source.template Widen<FUNCTION>(raw[r], dz);
#pragma unroll
      for (int p = 0; p < PLANES; ++p) {
        found[p].most = Largest(found[p].most, dz[p]);
#pragma unroll
        for (int i = 0; i < VEC; ++i) found[p].sum[i] += dz[p][i];
        Codes<Q, VEC>& made = codes[p][first + r];
        made.Of(dz[p], by);
        if (q && r < there) made.Store(q, (((row + r) * PLANES + p) * source.N + column) / VEC);
      }
    }
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
  constexpr int kRows = kMicroRows / PLANES;  // at once: their vectors fill registers
  __shared__ TransposedTile tile[2 * PLANES];
  const Differentiating<T, VEC, PLANES> source{dy, x, N, {function, limit, alpha, offset}};
  const float by = *scale;
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale_inv = 1.0f / by;
  const BlockTiles at(M, N, tiles);
  OfType(e5m2, [&]<typename Q>() {
    Found<Q, VEC> found[PLANES];
    ForTiles<Q, VEC, PLANES>(at, q_t, tile, [&](int64 row, int64 column, auto& codes) {
#pragma unroll
      for (int first = 0; first < kMicroRows; first += kRows)
        QuantizeGradientRows<kRows>(source, row + first, column, M, by, q, first, codes, found);
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
  });
}

}  // namespace quantize
