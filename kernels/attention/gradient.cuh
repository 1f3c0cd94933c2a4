// The gradient of the scores, which both backward kernels compute anew from the products of their
// tiles: p = 2^(score - stats), ds = p * (dp - delta) * slope of the modifier.
#pragma once

#include "dropout.cuh"
#include "params.cuh"

namespace attention {

// Of one head of one batch.
template <typename T, int kMod, bool kExtras>
struct Gradient {
  static constexpr bool kPlain = IsIdentity<kMod>() && !kExtras;

  const Params& params;
  const ScoreArgs score;  // copies, of which is computed before the walk what can be
  const float scale;
  const int mod;
  const Mask mask;
  int b, h;
  Bias bias;
  float* bias_gradient;  // null unless wanted
  Dropout dropout;
  unsigned dropout_row;  // number of query 0

  // Of some head of a batch: AtHead says which.
  __device__ __forceinline__ Gradient(const Params& given, const Mask& mask_of_batch, int batch)
      : params(given),
        score(given.score),
        scale(given.scale),
        mod(given.mod),
        mask(mask_of_batch),
        b(batch),
        bias{nullptr, given.queries, given.keys},
        bias_gradient(nullptr),
        dropout(DropoutOf(kExtras ? given.dropout_state : nullptr, given.dropout)) {}

  // sum: of the gradient of the bias, null unless wanted.
  __device__ __forceinline__ void AtHead(int head, float* sum) {
    h = head;
    if constexpr (kExtras) {
      dropout_row = (static_cast<unsigned>(b) * params.heads + h) * params.queries;
      if (params.bias != nullptr) bias.data = params.bias + params.BiasAt(b, h);
      if (sum != nullptr) bias_gradient = sum + params.BiasAt(b, h);
    }
  }

  // What is subtracted from a row's scores, or, of plain scores, from what they are as a power of
  // two. Rows that see nothing get probabilities of 0.
  __device__ static __forceinline__ float Base(float stats) {
    return stats == -Infinity() ? Infinity() : kPlain ? stats * kLog2e : stats;
  }

  // Products s (of q and k) and dp (of dout and v) become what multiplies dout in dv, and ds. A
  // lane holds rows `row` + 16 m + 8 half and keys `key` + 8 n + 0 and 1.
  template <int kM, int kN>
  __device__ __forceinline__ void Apply(float (&s)[kM][kN][4], float (&dp)[kM][kN][4],
                                        const float (&base)[kM][2], const float (&delta)[kM][2],
                                        int row, int key, bool whole, int lane) const {
    if constexpr (kPlain) {
      const float factor = scale * kLog2e;
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float p = Exp2(fmaf(s[m][n][i], factor, -base[m][i / 2]));
            s[m][n][i] = p;
            dp[m][n][i] = p * (dp[m][n][i] - delta[m][i / 2]);
          }
    } else if constexpr (!kExtras) {
      WithMod<kMod>(mod, [&](auto modifier) {
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int n = 0; n < kN; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int q = row + m * 16 + i / 2 * 8, k = key + n * 8 + (i & 1);
              const float x = s[m][n][i] * scale;
              const float y = modifier.Apply(x, b, h, q, k, score);
              const float p = Exp2((y - base[m][i / 2]) * kLog2e);
              s[m][n][i] = p;
              dp[m][n][i] =
                  p * (dp[m][n][i] - delta[m][i / 2]) * modifier.Slope(x, b, h, q, k, score);
            }
      });
    } else {
      ApplyExtras(s, dp, base, delta, row, key, lane);
    }
    if (!kExtras && !whole) Hide(s, dp, row, key);
  }

  // With bias and dropout. What is not seen is left out at once, so that it adds nothing to the
  // gradient of the bias. Modifiers have their own loop: the rest is compiled once, not for each.
  template <int kM, int kN>
  __device__ __forceinline__ void ApplyExtras(float (&s)[kM][kN][4], float (&dp)[kM][kN][4],
                                              const float (&base)[kM][2],
                                              const float (&delta)[kM][2], int row, int key,
                                              int lane) const {
    unsigned keeps[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      keeps[m] = kAllLanes;
      if (!dropout.present) continue;
      keeps[m] = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n)
        keeps[m] |= dropout.Keeps(dropout_row + row + m * 16, key + n * 8, lane) << (n * 4);
    }
    const float kept = dropout.present ? dropout.scale : 1.0f;
    float slope[kM][kN][4];
    WithMod<kMod>(mod, [&](auto modifier) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int q = row + m * 16 + i / 2 * 8, k = key + n * 8 + (i & 1);
            const float x = s[m][n][i] * scale;
            s[m][n][i] = modifier.Apply(x, b, h, q, k, score);
            slope[m][n][i] = modifier.Slope(x, b, h, q, k, score);
          }
    });
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int q = row + m * 16 + half * 8;
        const Range seen = mask.KeysOf(q);
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = half * 2; i < half * 2 + 2; ++i) {
            const int k = key + n * 8 + (i & 1);
            const bool visible = k >= seen.begin && k < seen.end;
            float y = s[m][n][i];
            if (bias.data != nullptr) y += bias.template At<T>(q, k);
            const float p = visible ? Exp2((y - base[m][half]) * kLog2e) : 0.0f;
            const float keep = keeps[m] >> (n * 4 + i) & 1 ? kept : 0.0f;
            const float ds = visible ? p * (dp[m][n][i] * keep - delta[m][half]) : 0.0f;
            if (bias_gradient != nullptr && visible)
              atomicAdd(bias_gradient + static_cast<int64>(q) * bias.keys + k, ds);
            s[m][n][i] = p * keep;
            dp[m][n][i] = visible ? ds * slope[m][n][i] : 0.0f;
          }
      }
  }

  template <int kM, int kN>
  __device__ __forceinline__ void Hide(float (&s)[kM][kN][4], float (&dp)[kM][kN][4], int row,
                                       int key) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Range seen = mask.KeysOf(row + m * 16 + half * 8);
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = half * 2; i < half * 2 + 2; ++i) {
            const int k = key + n * 8 + (i & 1);
            const bool visible = k >= seen.begin && k < seen.end;
            s[m][n][i] = visible ? s[m][n][i] : 0.0f;
            dp[m][n][i] = visible ? dp[m][n][i] : 0.0f;
          }
      }
  }
};

}  // namespace attention
