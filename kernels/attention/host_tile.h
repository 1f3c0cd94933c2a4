// Tiles of floats, and the two products of attention on them, for x86-64-v2, v3 and v4.
//
// A tile has rows of kTile lanes, of which the first `vectors` vectors are used. What runs along
// the lanes (queries, or keys in the gradients of k and v) is packed once, column by column; what
// runs along the rows is read from row-major memory one float at a time. So no product needs a sum
// over lanes, maxima and sums over rows are plain vector operations, and any depth will do.
#pragma once

#include "kbundle/host_vector.h"

namespace attention {

using namespace kbundle::host;

constexpr int kTile = 64;
constexpr int kColumns = KB_ISA_LEVEL >= 4 ? 4 : 2;  // vectors of a row held in registers at a time
constexpr int kRows = 4;
constexpr int64_t kDepth = 256;  // terms of a product summed in one go: long sums lose digits

inline int VectorsOf(int64_t lanes) { return static_cast<int>((lanes + kLanes - 1) / kLanes); }

inline Floats Max(Floats a, Floats b) { return a > b ? a : b; }  // a NaN in `a` loses

// e^x: 0 below -87.3, infinite above 88; NaN stays NaN. Relative error 2e-7.
inline Floats Exp(Floats x) {
  const Floats magic =
      Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  const Floats shifted = x * 1.4426950408889634f + magic;
  const Floats n = shifted - magic;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = Splat(1.9875691500e-4f);  // (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, as in Cephes
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Floats power = AsFloats((AsWords(shifted) << 23) + (127u << 23));
  const Floats e = x < -87.3f ? Splat(0.0f) : p * power;
  return x > 88.0f ? Splat(Infinity()) : e;
}

// The natural logarithm of each lane, for finite numbers above 2^-126; NaN stays NaN.
inline Floats Log(Floats x) {
  const Words bits = AsWords(x) - 0x3f3504f3u;  // so that the mantissa lies around 1
  const Floats exponent = __builtin_convertvector((Ints)bits >> 23, Floats);
  const Floats m = AsFloats((bits & 0x7fffffu) + 0x3f3504f3u);
  const Floats s = (m - 1.0f) / (m + 1.0f), z = s * s;  // log(m) = 2 artanh(s)
  Floats p = Splat(2.0f / 9);
  p = p * z + 2.0f / 7;
  p = p * z + 2.0f / 5;
  p = p * z + 2.0f / 3;
  p = p * z + 2.0f;
  const Floats log = exponent * 0.693359375f + (p * s - exponent * 2.12194440e-4f);
  return x == x ? log : x;
}

// rows x depth elements to floats.
template <typename E>
void Widen(int64_t begin, int64_t end, float* to, const typename E::Memory* from, int64_t depth) {
  const int64_t last = end * depth;
  int64_t i = begin * depth;
  for (; i + kLanes <= last; i += kLanes)
    StoreAny(to + i, E::Widen(LoadAny<typename E::Raw>(from + i)));
  if (i == last) return;
  const Floats rest = Load<E>(from + i, last - i);
  for (int j = 0; i + j < last; ++j) to[i + j] = rest[j];
}

// A tensor as floats: of a 16-bit type the widened copy.
template <typename E>
inline const float* AsFloat(const void* x, const float* widened) {
  return E::kIsFloat ? static_cast<const float*>(x) : widened;
}

template <int R, int C>
__attribute__((always_inline)) inline void DotBlock(float* out, const float* a, int64_t stride,
                                                    const float* columns, int64_t depth,
                                                    bool more) {
  Floats sum[R][C] = {};
  for (int64_t d = 0; d < depth; ++d) {
    Floats b[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) b[c] = LoadAny<Floats>(columns + d * kTile + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Floats x = Splat(a[r * stride + d]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[r][c] += x * b[c];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      float* to = out + r * kTile + c * kLanes;
      StoreAny(to, more ? LoadAny<Floats>(to) + sum[r][c] : sum[r][c]);
    }
  }
}

template <int C>
inline void DotColumns(float* out, const float* a, int64_t stride, int rows, const float* columns,
                       int64_t depth) {
  for (int64_t d = 0; d < depth; d += kDepth) {
    const int64_t part = depth - d < kDepth ? depth - d : kDepth;
    const float* part_columns = columns + d * kTile;
    int r = 0;
    for (; r + kRows <= rows; r += kRows)
      DotBlock<kRows, C>(out + r * kTile, a + r * stride + d, stride, part_columns, part, d > 0);
    for (; r < rows; ++r)
      DotBlock<1, C>(out + r * kTile, a + r * stride + d, stride, part_columns, part, d > 0);
  }
}

// out[r][lane] = sum over d of a[r * stride + d] * columns[d][lane]
__attribute__((noinline)) inline void Dot(float* out, const float* a, int64_t stride, int rows,
                                          const float* columns, int64_t depth, int vectors) {
  int c = 0;
  for (; c + kColumns <= vectors; c += kColumns)
    DotColumns<kColumns>(out + c * kLanes, a, stride, rows, columns + c * kLanes, depth);
  for (; c < vectors; ++c)
    DotColumns<1>(out + c * kLanes, a, stride, rows, columns + c * kLanes, depth);
}

template <int R, int C>
__attribute__((always_inline)) inline void AddBlock(float* sums, const float* a, int64_t stride,
                                                    int rows, const float* weights) {
  Floats sum[R][C];
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sum[i][c] = LoadAny<Floats>(sums + i * kTile + c * kLanes);
  }
  for (int r = 0; r < rows; ++r) {
    Floats b[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) b[c] = LoadAny<Floats>(weights + r * kTile + c * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const Floats x = Splat(a[r * stride + i]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sum[i][c] += x * b[c];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) StoreAny(sums + i * kTile + c * kLanes, sum[i][c]);
  }
}

template <int C>
inline void AddColumns(float* sums, const float* a, int64_t stride, int rows, const float* weights,
                       int64_t depth) {
  int64_t d = 0;
  for (; d + kRows <= depth; d += kRows)
    AddBlock<kRows, C>(sums + d * kTile, a + d, stride, rows, weights);
  for (; d < depth; ++d) AddBlock<1, C>(sums + d * kTile, a + d, stride, rows, weights);
}

// sums[d][lane] += sum over r of a[r * stride + d] * weights[r][lane]
__attribute__((noinline)) inline void Add(float* sums, const float* a, int64_t stride, int rows,
                                          const float* weights, int64_t depth, int vectors) {
  int c = 0;
  for (; c + kColumns <= vectors; c += kColumns)
    AddColumns<kColumns>(sums + c * kLanes, a, stride, rows, weights + c * kLanes, depth);
  for (; c < vectors; ++c)
    AddColumns<1>(sums + c * kLanes, a, stride, rows, weights + c * kLanes, depth);
}

inline void Clear(float* tile, int64_t rows) {
  for (int64_t i = 0; i < rows * kTile; i += kLanes) StoreAny(tile + i, Floats{});
}

// columns[d][lane] = rows[lane * stride + d] * by; lanes from `count` on are 0.
template <typename E>
inline void Pack(float* columns, const typename E::Memory* rows, int64_t stride, int count,
                 int64_t depth, float by) {
  if (count < kTile) Clear(columns, depth);
  for (int lane = 0; lane < count; ++lane) {
    for (int64_t d = 0; d < depth; d += kLanes) {
      const Floats v = Load<E>(rows + lane * stride + d, depth - d) * by;
      for (int i = 0; i < kLanes && d + i < depth; ++i) columns[(d + i) * kTile + lane] = v[i];
    }
  }
}

// rows[lane * stride + d] = columns[d][lane] * by[lane]
template <typename E>
inline void Unpack(typename E::Memory* rows, int64_t stride, int count, const float* columns,
                   int64_t depth, const float* by) {
  for (int lane = 0; lane < count; ++lane) {
    for (int64_t d = 0; d < depth; d += kLanes) {
      Floats v = Floats{};
      for (int i = 0; i < kLanes && d + i < depth; ++i) v[i] = columns[(d + i) * kTile + lane];
      Store<E>(rows + lane * stride + d, v * by[lane], depth - d);
    }
  }
}

}  // namespace attention
