// Tiles of matrix products of floats, on vectors of host_vector.h. For host kernels.
//
// A register tile is kRows x kColumns sums. Packed operands are cut into slivers: kRows rows of
// op(a), or kColumns columns of op(b), as f32[K][kRows] and f32[K][kColumns]; what is missing at
// the end is zero. So one loop, over K, serves every layout and dtype.
#pragma once

#include "kbundle/host_fp8.h"
#include "kbundle/host_vector.h"

namespace kbundle::host {

constexpr int kRows = KB_ISA_LEVEL >= 4 ? 12 : 6;  // as many sums as there are registers, nearly
constexpr int kVectors = 2;
constexpr int kColumns = kVectors * kLanes;
constexpr int kDepth = 256;    // of K at a time: a sliver of b then stays in L1
constexpr int kTileRows = 96;  // of d, in one piece of work: kRows and kColumns divide these,
constexpr int kTileColumns = 64;
constexpr int kUnitRows = 12;  // and these, the sizes that manifests know, of any level
constexpr int kUnitColumns = 32;

// One sliver of W lines: rows of op(a) or columns of op(b), of which `count` exist. Line i starts
// at from + i * line_stride and goes on in steps of depth_stride; one of the two is 1.
template <typename E, int W>
inline void PackSliver(float* to, const typename E::Memory* from, int64_t count, int64_t K,
                       int64_t line_stride, int64_t depth_stride) {
  if (line_stride == 1) {
    for (int64_t k = 0; k < K; ++k) {
#pragma GCC unroll 4
      for (int i = 0; i < W; i += kLanes)
        Store<F32>(to + k * W + i, Load<E>(from + k * depth_stride + i, count - i), W - i);
    }
    return;
  }
  for (int64_t k = 0; k < K; k += kLanes) {
    float block[W][kLanes];
    for (int i = 0; i < W; ++i)
      StoreAny(block[i], i < count ? Load<E>(from + i * line_stride + k, K - k) : Floats{});
    const int64_t depth = K - k < kLanes ? K - k : kLanes;
    for (int64_t j = 0; j < depth; ++j) {
      for (int i = 0; i < W; ++i) to[(k + j) * W + i] = block[i][j];
    }
  }
}

// sums[R][kColumns], rows `pitch` apart, += the product of R <= kRows rows of a sliver of op(a) and
// a sliver of op(b). Summed from zero each time, so that long sums lose less.
template <int R>
inline void AddProduct(float* sums, int64_t pitch, const float* a, const float* b, int64_t depth) {
  Floats sum[R][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Floats line[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) line[j] = LoadAny<Floats>(b + k * kColumns + j * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < R; ++i) {
      const Floats factor = Splat(a[k * kRows + i]);
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) sum[i][j] += factor * line[j];
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      float* at = sums + i * pitch + j * kLanes;
      StoreAny(at, LoadAny<Floats>(at) + sum[i][j]);
    }
  }
}

inline void AddSomeRows(float* sums, int64_t pitch, const float* a, const float* b, int64_t depth,
                        int64_t rows) {
  if (rows <= 1) return AddProduct<1>(sums, pitch, a, b, depth);
  if (rows <= 2) return AddProduct<2>(sums, pitch, a, b, depth);
  if (rows <= 4) return AddProduct<4>(sums, pitch, a, b, depth);
  if constexpr (kRows > 6) {
    if (rows <= 6) return AddProduct<6>(sums, pitch, a, b, depth);
    if (rows <= 8) return AddProduct<8>(sums, pitch, a, b, depth);
  }
  AddProduct<kRows>(sums, pitch, a, b, depth);
}

}  // namespace kbundle::host
