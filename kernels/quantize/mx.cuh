// MXFP8: a power of two for each 32 elements of a row, of a column, or of both, in one pass.
//
// A warp has a tile of 32 x 32 in registers: VEC columns a lane, 32 / VEC lanes beside one another,
// VEC rows a lane, one below the other every VEC lanes:
//
//   16-bit elements, VEC 8: lane l has rows l / 4, l / 4 + 8, .. + 24 of columns l % 4 * 8 and on
//
// so that the largest of a row is among neighbouring lanes and that of a column among those at the
// same place. A block is 8 warps: 64 rows of 128 columns.
#pragma once

#include "blocks.cuh"

namespace quantize {

inline constexpr int kMx = 32;  // elements that share a scale

// The exponent, biased by 127, of a block's scale: the power of two that is not below amax / most.
// TransformerEngine's rounding, at both ends too.
template <typename Q>
__device__ __forceinline__ unsigned MxExponent(unsigned most) {
  if (most > kInfinity) return 0xff;  // NaN
  if (most == kInfinity) return 0xfe;
  const unsigned bits = __float_as_uint(__uint_as_float(most) * (1.0f / Fp8<Q>::kMost));
  const unsigned exponent = bits >> 23, mantissa = bits & 0x7fffffu;
  const bool up = mantissa > 0 && !(exponent == 0 && mantissa <= 0x400000u);
  return exponent + up;
}

// 2^(127 - exponent): what elements are multiplied by; 1 in a block that is NaN.
__device__ __forceinline__ float MxScale(unsigned exponent) {
  if (exponent >= 0xfe) return exponent == 0xff ? 1.0f : __uint_as_float(0x00400000u);  // 2^-127
  return __uint_as_float((254 - exponent) << 23);
}

// Codes and scales in one direction; codes is null where they are not wanted. Scale (row, column)
// is at row * pitch + column.
struct MxResult {
  unsigned char* codes;
  unsigned char* scales;
  int64 pitch;
};

template <typename T, typename Q, int VEC>
struct MxTile {
  using V = Vector<T, VEC>;
  static constexpr int kAcross = kMx / VEC;   // lanes beside one another
  static constexpr int kDown = 32 / kAcross;  // lanes below one another
  static constexpr int kRows = kMx / kDown;   // of a lane
  // Single elements would take too many registers, and are read each time.
  static constexpr bool kHeld = VEC > 1;
  static constexpr int kUnrolled = kHeld ? kRows : 2;
  typename V::Raw raw[kHeld ? kRows : 1];
  const T* x;
  int64 row, column, M, N;  // of the first element of this lane; of the tensor

  __device__ __forceinline__ bool Inside(int r) const { return row + r * kDown < M && column < N; }
  __device__ __forceinline__ int64 Place(int r) const {
    return ((row + r * kDown) * N + column) / VEC;
  }
  __device__ __forceinline__ void Load() {
    if constexpr (kHeld) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) raw[r] = Inside(r) ? V::Load(x, Place(r)) : typename V::Raw{};
    }
  }
  // Row r of this lane; zeros outside.
  __device__ __forceinline__ void Widen(int r, float (&f)[VEC]) const {
    if constexpr (kHeld) {
      V::Widen(raw[r], f);
    } else {
      V::Widen(Inside(r) ? V::Load(x, Place(r)) : typename V::Raw{}, f);
    }
  }

  // Scales along rows.
  __device__ __forceinline__ void StoreRows(const MxResult& to) const {
#pragma unroll kUnrolled
    for (int r = 0; r < kRows; ++r) {
      float f[VEC];
      Widen(r, f);
      const unsigned exponent = MxExponent<Q>(LargestOfLanes<kAcross>(Largest(0u, f)));
      if (!Inside(r)) continue;
      Codes<Q, VEC> codes;
      codes.Of(f, MxScale(exponent));
      codes.Store(to.codes, Place(r));
      if (column % kMx == 0)
        to.scales[(row + r * kDown) * to.pitch + column / kMx] =
            static_cast<unsigned char>(exponent);
    }
  }

  // Scales along columns.
  __device__ __forceinline__ void StoreColumns(const MxResult& to) const {
    unsigned most[VEC] = {};
#pragma unroll kUnrolled
    for (int r = 0; r < kRows; ++r) {
      float f[VEC];
      Widen(r, f);
#pragma unroll
      for (int i = 0; i < VEC; ++i) most[i] = max(most[i], __float_as_uint(f[i]) & 0x7fffffffu);
    }
    float scale[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
#pragma unroll
      for (int lanes = kAcross; lanes < 32; lanes *= 2)
        most[i] = max(most[i], __shfl_xor_sync(kAllLanes, most[i], lanes));
      most[i] = MxExponent<Q>(most[i]);
      scale[i] = MxScale(most[i]);
    }
#pragma unroll kUnrolled
    for (int r = 0; r < kRows; ++r) {
      if (!Inside(r)) continue;
      float f[VEC];
      Widen(r, f);
#pragma unroll
      for (int i = 0; i < VEC; ++i) f[i] *= scale[i];
      Codes<Q, VEC> codes;
      codes.Of(f, 1.0f);
      codes.Store(to.codes, Place(r));
    }
    if (row % kMx != 0 || !Inside(0)) return;
    unsigned char* scales = to.scales + row / kMx * to.pitch + column;
#pragma unroll
    for (int i = 0; i < VEC; ++i) scales[i] = static_cast<unsigned char>(most[i]);
  }
};

template <typename T, typename Q, int VEC>
__device__ __forceinline__ void QuantizeMx(const MxResult& rows, const MxResult& columns,
                                           const T* x, int64 M, int64 N, unsigned across) {
  using Tile = MxTile<T, Q, VEC>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Tile tile;
  tile.x = x;
  tile.M = M;
  tile.N = N;
  tile.row = (blockIdx.x / across * 2 + warp / 4) * int64{kMx} + lane / Tile::kAcross;
  tile.column = (blockIdx.x % across * 4 + warp % 4) * int64{kMx} + lane % Tile::kAcross * VEC;
  tile.Load();
  if (rows.codes) tile.StoreRows(rows);
  if (columns.codes) tile.StoreColumns(columns);
}

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, 1)
    mxfp8(unsigned char* rows, unsigned char* row_scales, int64 row_pitch, unsigned char* columns,
          unsigned char* column_scales, int64 column_pitch, const T* x, int64 M, int64 N,
          unsigned across, bool e5m2) {
  OfType(e5m2, [=]<typename Q>() {
    QuantizeMx<T, Q, VEC>({rows, row_scales, row_pitch}, {columns, column_scales, column_pitch}, x,
                          M, N, across);
  });
}

}  // namespace quantize
