// Products of few rows, where reading op(b) is all the work: it is read once, where it lies.
//
// A strip of kStrip results in each row is summed on the stack. Where the columns of op(b) are
// together, its rows are added up, weighted, four at a time: pieces long enough to be worth a page.
// Where a column is together, each result is a dot product, of four columns at a time.
#pragma once

#include "host_epilogue.h"

namespace matmul {

constexpr int kStrip = 256;
constexpr int kFewRows = 12;  // matmul.toml's bound for these kernels
constexpr int kGroup = 4;

// rows[batch, m, k] = op(a) as floats.
template <typename E>
void WidenRows(int64_t begin, int64_t end, float* rows, const typename E::Memory* a, bool trans,
               int64_t M, int64_t K) {
  for (int64_t row = begin; row < end; ++row) {
    float* to = rows + row * K;
    const typename E::Memory* from = trans ? a + row / M * M * K + row % M : a + row * K;
    if (trans) {
      for (int64_t k = 0; k < K; ++k) to[k] = Load<E>(from + k * M, 1)[0];
    } else {
      for (int64_t k = 0; k < K; k += kLanes) Store<F32>(to + k, Load<E>(from + k, K - k), K - k);
    }
  }
}

// sums[R rows][kStrip] += `D` rows of b, each N long, weighted by D numbers of each row of a.
template <typename E, int D>
inline void AddWeighted(float* sums, const float* a, const typename E::Memory* b, int64_t R,
                        int64_t columns, int64_t N, int64_t K) {
  for (int64_t j = 0; j < columns; j += kLanes) {
    Floats line[D];
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) line[i] = Load<E>(b + i * N + j, columns - j);
    for (int64_t m = 0; m < R; ++m) {
      Floats sum = line[0] * a[m * K];
#pragma GCC unroll 4
      for (int i = 1; i < D; ++i) sum += line[i] * a[m * K + i];
      float* at = sums + m * kStrip + j;
      StoreAny(at, LoadAny<Floats>(at) + sum);
    }
  }
}

// sums[R rows][kGroup] += dot products of rows of a with kGroup columns of op(b), each K long and
// `depth` of them counted; a column past the last is the last again.
template <typename E>
inline void AddDots(float* sums, const float* a, const typename E::Memory* b, int64_t R,
                    int64_t columns, int64_t depth, int64_t K) {
  const typename E::Memory* column[kGroup];
  for (int i = 0; i < kGroup; ++i) column[i] = b + (i < columns ? i : columns - 1) * K;
  for (int64_t m = 0; m < R; ++m) {
    Floats sum[kGroup] = {};
    for (int64_t k = 0; k < depth; k += kLanes) {
      const Floats factor = Load<F32>(a + m * K + k, depth - k);
#pragma GCC unroll 4
      for (int i = 0; i < kGroup; ++i) sum[i] += factor * Load<E>(column[i] + k, depth - k);
    }
    for (int i = 0; i < kGroup; ++i) {
      float total = 0;
      for (int lane = 0; lane < kLanes; ++lane) total += sum[i][lane];
      sums[m * kStrip + i] += total;
    }
  }
}

template <typename E>
__attribute__((noinline)) void SumStrip(float* sums, const float* a, const typename E::Memory* b,
                                        bool trans, int64_t R, int64_t column, int64_t columns,
                                        int64_t N, int64_t K) {
  for (int64_t i = 0; i < R * kStrip; i += kLanes) StoreAny(sums + i, Floats{});
  if (trans) {
    for (int64_t n = 0; n < columns; n += kGroup) {
      for (int64_t k = 0; k < K; k += 2 * kDepth) {
        const int64_t depth = K - k < 2 * kDepth ? K - k : 2 * kDepth;
        AddDots<E>(sums + n, a + k, b + (column + n) * K + k, R, columns - n, depth, K);
      }
    }
    return;
  }
  int64_t k = 0;
  for (; k + kGroup <= K; k += kGroup)
    AddWeighted<E, kGroup>(sums, a + k, b + k * N + column, R, columns, N, K);
  for (; k < K; ++k) AddWeighted<E, 1>(sums, a + k, b + k * N + column, R, columns, N, K);
}

template <typename E, typename O>
void MultiplyRows(int64_t begin, int64_t end, typename O::Memory* d, typename O::Memory* aux_out,
                  uint8_t* mask_out, const float* rows, const typename E::Memory* b,
                  const typename O::Memory* c, const typename O::Memory* bias,
                  const typename O::Memory* aux, const uint8_t* mask, const float* a_scale,
                  const float* b_scale, bool trans, float alpha, float beta, int32_t epilogue,
                  int64_t M, int64_t N, int64_t K) {
  Epilogue<O> finish{d, aux_out, mask_out, nullptr, c, bias, aux, mask, alpha, beta, epilogue, N};
  finish.Scale(a_scale, b_scale);
  const int64_t strips = (N + kStrip - 1) / kStrip;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t batch = t / strips, column = t % strips * kStrip;
    const int64_t columns = N - column < kStrip ? N - column : kStrip;
    // Dot products may be of columns that are not there, up to the next multiple of kGroup.
    alignas(64) float sums[kFewRows * kStrip], unused[kTileColumns] = {};
    SumStrip<E>(sums, rows + batch * M * K, b + batch * N * K, trans, M, column, columns, N, K);
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t j = 0; j < columns; j += kTileColumns) {
        const int64_t part = columns - j < kTileColumns ? columns - j : kTileColumns;
        finish.Row(sums + m * kStrip + j, batch * M + m, column + j, part, unused);
      }
    }
  }
}

}  // namespace matmul
