// MXFP8: a power of two for each 32 elements of a row, of a column, or of both, in one pass.
//
// A warp has a tile of 32 x 32 in registers: VEC columns a lane, 32 / VEC lanes beside one another,
// VEC lanes below one another, whose rows are VEC apart:
//
//   16-bit elements, VEC 8: lane l has rows l / 4, l / 4 + 8, .. + 24 of columns l % 4 * 8 and on
//
// so that the largest of a row is among neighbouring lanes and that of a column among those at the
// same place. 32 lanes have 32 rows and 32 columns: each makes the scale of one row and of one
// column, and finds those of its elements in shared memory. A block is 8 warps: 64 rows of 128
// columns.
#pragma once

#include "blocks.cuh"

namespace quantize {

inline constexpr int kMx = 32;                    // elements that share a scale
inline constexpr int kMxDown = 2, kMxAcross = 4;  // warps of a block

// The exponent, biased by 127, of a block's scale: the power of two that is not below
// amax * per_most, where that is 1 / (the largest number of codes). TransformerEngine's rounding,
// at both ends too.
__device__ __forceinline__ unsigned MxExponent(unsigned largest, float per_most) {
  const unsigned bits = __float_as_uint(__uint_as_float(largest) * per_most);
  if (bits <= 0x400000u) return 0;
  // One more where the mantissa is not 0. Of a NaN 255, which is one, of an infinity 254.
  return largest == kInfinity ? 0xfeu : min((bits + 0x7fffffu) >> 23, 0xffu);
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

// What a block's warps leave for their lanes and, of rows, for one another: scales in the order in
// which lanes want them, exponents as they lie in memory.
struct MxScratch {
  alignas(16) float by_row[kThreads / 32][kMx];
  alignas(16) float by_column[kThreads / 32][kMx];
  unsigned char of_rows[kMxDown * kMx][kMxAcross];
};

template <typename T, int VEC, bool LOOSE>
struct MxTile {
  using V = Vector<T, VEC>;
  using In = Elements<T, VEC, LOOSE>;
  using Of = Magnitudes<T, VEC>;
  static constexpr int kAcross = kMx / VEC;                  // lanes beside one another
  static constexpr int kDown = 32 / kAcross;                 // lanes below one another
  static constexpr int kRows = kMx / kDown;                  // of a lane
  static constexpr int kAtOnce = LOOSE ? kRows / 2 : kRows;  // as many loads as registers hold
  static_assert(kRows == kAcross && VEC == kDown, "a row and a column for each lane");
  typename V::Raw raw[kRows];
  int64 row, column, N;  // of the first element of this lane; of the tensor's rows
  int left, there;       // columns and rows that there are from that element on; none below 1

  __device__ __forceinline__ MxTile(const T* x, int64 M, int64 N, unsigned across) : N(N) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = (blockIdx.x / across * kMxDown + warp / kMxAcross) * int64{kMx} + lane / kAcross;
    column =
        (blockIdx.x % across * kMxAcross + warp % kMxAcross) * int64{kMx} + lane % kAcross * VEC;
    left = static_cast<int>(min(N - column, int64{kMx}));
    there = left > 0 ? static_cast<int>(min(M - row, int64{kMx})) : 0;
    In in = In(x, M * N).From(row * N + column);
    const typename In::Kept kept(left);
#pragma unroll
    for (int first = 0; first < kRows; first += kAtOnce) {
      typename In::Loaded loaded[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        loaded[r] = {};
        if ((first + r) * kDown < there) loaded[r] = in.Load(0, left);
        in = in.From(kDown * N);  // by an addition
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) raw[first + r] = In::Whole(loaded[r], kept);
    }
  }

  // The largest of rows and columns become exponents and scales.
  __device__ __forceinline__ void MakeScales(const MxResult& rows, const MxResult& columns,
                                             float per_most, MxScratch& scratch) const {
    unsigned of_row[kRows] = {}, of_column[Of::kWords] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) Of::Join(raw[r], of_row[r], of_column);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int across = lane % kAcross, down = lane / kAcross;
    if (rows.codes) {
      const unsigned largest = Of::Bits(LargestOfEach<Of, 1, kAcross>(of_row));
      const unsigned exponent = MxExponent(largest, per_most);
      scratch.by_row[warp][lane] = MxScale(exponent);
      scratch.of_rows[warp / kMxAcross * kMx + across * kDown + down][warp % kMxAcross] =
          static_cast<unsigned char>(exponent);
    }
    if (columns.codes) {
      const unsigned largest = LargestOfEach<Of, kAcross, kDown>(of_column);
      const unsigned exponent = MxExponent(Of::Bits(largest, down % 2 != 0), per_most);
      scratch.by_column[warp][across * VEC + down] = MxScale(exponent);
      if (there + down > 0 && down < left)
        columns.scales[row / kMx * columns.pitch + column + down] =
            static_cast<unsigned char>(exponent);
    }
  }

  template <typename Q>
  __device__ __forceinline__ void StoreCodes(const float (&f)[VEC], const float (&by)[VEC], int r,
                                             unsigned char* to) const {
    float scaled[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) scaled[i] = f[i] * by[i];
    Codes<Q, VEC> codes;
    codes.Of(scaled, 1.0f);
    StoreInRow<kAcross, LOOSE>(codes, to, r * kDown < there ? left : 0);
  }

  template <typename Q>
  __device__ __forceinline__ void MakeCodes(unsigned char* rows, unsigned char* columns,
                                            const MxScratch& scratch) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool by_rows = rows != nullptr, by_columns = columns != nullptr;
    float by_column[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) by_column[i] = scratch.by_column[warp][lane % kAcross * VEC + i];
    int64 at = row * N + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float f[VEC];
      V::Widen(raw[r], f);
      if (by_rows) {
        float by_row[VEC];
#pragma unroll
        for (int i = 0; i < VEC; ++i) by_row[i] = scratch.by_row[warp][lane / kAcross * kRows + r];
        StoreCodes<Q>(f, by_row, r, rows + at);
      }
      if (by_columns) StoreCodes<Q>(f, by_column, r, columns + at);
      at += kDown * N;
    }
  }
};

// Exponents of a block's rows, the four of a row beside one another.
__device__ __forceinline__ void StoreMxRows(const MxResult& rows, int64 M, int64 N, unsigned across,
                                            const MxScratch& scratch) {
  const int row = threadIdx.x / kMxAcross, part = threadIdx.x % kMxAcross;
  const int64 line = blockIdx.x / across * int64{kMxDown * kMx} + row;
  const int64 place = blockIdx.x % across * int64{kMxAcross} + part;
  if (line < M && place * kMx < N)
    rows.scales[line * rows.pitch + place] = scratch.of_rows[row][part];
}

// How many blocks a multiprocessor has at once: enough bytes in flight, on Hopper, where registers
// do.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
template <int VEC>
inline constexpr int kMxAtOnce = VEC == 8   ? 5
                                 : VEC == 4 ? 3
                                            : 2;
#else
template <int VEC>
inline constexpr int kMxAtOnce = 1;
#endif

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, kMxAtOnce<VEC>)
    mxfp8(unsigned char* rows, unsigned char* row_scales, int64 row_pitch, unsigned char* columns,
          unsigned char* column_scales, int64 column_pitch, const T* x, int64 M, int64 N,
          unsigned across, bool e5m2) {
  __shared__ MxScratch scratch;
  const MxResult by_rows{rows, row_scales, row_pitch};
  const MxTile<T, kTaken<T, VEC>, VEC == 1> tile(x, M, N, across);
  tile.MakeScales(by_rows, {columns, column_scales, column_pitch}, 1.0f / MostOf(e5m2), scratch);
  __syncthreads();
  OfType(e5m2, [&]<typename Q>() { tile.template MakeCodes<Q>(rows, columns, scratch); });
  if (rows) StoreMxRows(by_rows, M, N, across, scratch);
}

}  // namespace quantize
