// Keys and values of e4m3 under 16-bit queries: products of f16, into which fragments are converted
// on their way from shared memory to the tensor cores.
//
// A matrix load brings a lane four bytes in a row, where the product wants two numbers of 16 bits
// and two others eight further. Which numbers a product adds up first is of no matter, so queries
// lie in the order of the keys' bytes: of 16 columns first those of the lower two of each four,
//
//   column  0 1 4 5 8 9 12 13   2 3 6 7 10 11 14 15
//
// and of the values, which are loaded transposed, two bytes of a row belong to two products: one
// of the even columns of 16 and one of the odd ones.
#pragma once

#include "tile.cuh"

namespace attention {

// Chunk `chunk` of a row of queries, in the order above and as f16, divided by a power of two that
// makes the largest of the row 1 to 2: what 16 bits of bf16 hold may be too large for f16. Returns
// that power. By all lanes that share the row; from: null of zeros.
template <typename T, int kHead>
__device__ __forceinline__ float StoreHalves(unsigned tile, int row, int chunk,
                                             const unsigned short* from) {
  const uint4 words = from == nullptr ? uint4{0, 0, 0, 0} : *reinterpret_cast<const uint4*>(from);
  const unsigned pairs[4] = {words.x, words.y, words.z, words.w};
  float x[8], largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = Element<T>::Low(pairs[i]);
    x[2 * i + 1] = Element<T>::Low(pairs[i] >> 16);
    largest = fmaxf(largest, fmaxf(fabsf(x[2 * i]), fabsf(x[2 * i + 1])));
  }
#pragma unroll
  for (int step = 1; step < kHead / 8; step *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
  const unsigned exponent = max(1u, min(__float_as_uint(largest) >> 23, 253u));
  const float by = __uint_as_float((254u - exponent) << 23);
  unsigned halves[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) halves[i] = Element<__half>::Pack(x[2 * i] * by, x[2 * i + 1] * by);
  const unsigned place = chunk % 2 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    StoreShared8(tile + Tile<kHead>::Chunk(row, chunk / 2 * 2 + half) + place,
                 __uint_as_float(halves[half]), __uint_as_float(halves[half + 2]));
  return __uint_as_float(exponent << 23);
}

// c[n] += the product over 32 * kSteps of 16 queries and rows of keys; `a` is RowsFirst, `b`
// ChunksFirst.
template <typename A, typename B, int kSteps, int kN>
__device__ __forceinline__ void MultiplyRows8(float (&c)[kN][4], unsigned a, unsigned b) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    unsigned fa[2][4];
    LoadMatrices(fa[0], A::Pair(a, 2 * k));
    LoadMatrices(fa[1], A::Pair(a, 2 * k + 1));
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      unsigned fb[4];
      LoadMatrices(fb, B::Pair(b, k) + n * 8 * B::kRowBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        Multiply<__half>(c[n + i / 2], fa[i % 2], HalvesOfE4m3(fb[i]), HalvesOfE4m3(fb[i] >> 16));
    }
  }
}

// c += a * B for 16 rows of values; c[2 * i] are the even columns of 16, c[2 * i + 1] the odd ones.
// `b` is RowsFirst.
template <typename B, int kN>
__device__ __forceinline__ void MultiplyDown8(float (&c)[kN][4], const unsigned (&a)[4],
                                              unsigned b) {
#pragma unroll
  for (int n = 0; n < kN; n += 4) {
    unsigned fb[4];
    LoadTransposed(fb, B::Pair(b, n / 4));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned low = __byte_perm(fb[2 * i], 0, 0x3120);  // rows 0 to 7, even columns first
      const unsigned high = __byte_perm(fb[2 * i + 1], 0, 0x3120);
      Multiply<__half>(c[n + 2 * i], a, HalvesOfE4m3(low), HalvesOfE4m3(high));
      Multiply<__half>(c[n + 2 * i + 1], a, HalvesOfE4m3(low >> 16), HalvesOfE4m3(high >> 16));
    }
  }
}

}  // namespace attention
