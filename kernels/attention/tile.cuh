// Tiles of 16-bit elements in shared memory, and the products of them.
//
// A tile holds rows of kCols elements, in chunks of 16 bytes. Chunks change places within a segment
// of a row, by an exclusive or with a number that goes with the row:
//
//   rows of 128 n bytes:       segment of 8 chunks, number = row % 8
//   rows of 64 n bytes, n odd: segment of 4 chunks, number = row / 2 % 4
//
// so that 8 chunks of one column, which a matrix load reads together, lie in 8 different groups of
// banks, and so do 8 chunks that neighbouring threads copy. Adding 8 to a row does not change its
// number: the address of a fragment is one exclusive or and an immediate away from its neighbour's.
#pragma once

#include "ptx.cuh"

namespace attention {

template <int kCols>
struct Tile {
  static_assert(kCols % 32 == 0, "rows are a multiple of 64 bytes");
  static constexpr int kRowBytes = kCols * 2;
  static constexpr int kSegment = kRowBytes % 128 == 0 ? 8 : 4;  // chunks

  __device__ static __forceinline__ unsigned Spread(int row) {
    return kSegment == 8 ? row & 7 : (row >> 1) & 3;
  }

  // Byte offset of a chunk of the first segment of a row.
  __device__ static __forceinline__ unsigned Offset(int row, unsigned chunk) {
    return row * kRowBytes + ((chunk ^ Spread(row)) << 4);
  }

  // Where the chunk 2 * pair + c of a row is, given the address of its chunk c, c being 0 or 1.
  __device__ static __forceinline__ unsigned Pair(unsigned address, int pair) {
    constexpr int kPairs = kSegment / 2;
    return (address ^ ((pair % kPairs) << 5)) + pair / kPairs * kSegment * 16;
  }

  // The address with which Pair(.., kGroups * i) is the pair kGroups * i + group of `address`, for
  // powers of two kGroups <= kSegment / 2.
  __device__ static __forceinline__ unsigned Group(unsigned address, int group) {
    return address ^ (group << 5);
  }

  // Any chunk.
  __device__ static __forceinline__ unsigned Chunk(int row, int chunk) {
    return Offset(row, chunk % kSegment) + chunk / kSegment * kSegment * 16;
  }

  // Lane addresses of four 8 x 8 matrices, for LoadMatrices or LoadTransposed:
  // rows 0..7 and 8..15 of chunk 0, then of chunk 1,
  __device__ static __forceinline__ unsigned RowsFirst(unsigned tile, int row, int lane) {
    return tile + Offset(row + (lane & 15), lane >> 4);
  }
  // or chunks 0 and 1 of rows 0..7, then of rows 8..15.
  __device__ static __forceinline__ unsigned ChunksFirst(unsigned tile, int row, int lane) {
    return tile + Offset(row + (lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
  }
};

// A matrix in global memory, as bits. Rows and columns past the end read as zero.
struct Source {
  const unsigned short* data;
  int64 stride;  // elements from row to row
  int rows, columns;
};

__device__ __forceinline__ uint4 LoadElements(const Source& from, int row, int column) {
  unsigned short e[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool inside = row < from.rows && column + i < from.columns;
    e[i] = inside ? from.data[row * from.stride + column + i] : 0;
  }
  return {e[0] | static_cast<unsigned>(e[1]) << 16, e[2] | static_cast<unsigned>(e[3]) << 16,
          e[4] | static_cast<unsigned>(e[5]) << 16, e[6] | static_cast<unsigned>(e[7]) << 16};
}

// Starts the copy of rows first .. first + kRows - 1 into a tile. kVector: rows start at multiples
// of 16 bytes and their length is one; otherwise elements are loaded one by one.
template <int kRows, int kCols, int kThreads, bool kVector>
__device__ __forceinline__ void LoadTile(unsigned tile, const Source& from, int first, int thread) {
  using Layout = Tile<kCols>;
  constexpr int kSegment = Layout::kSegment, kStep = kThreads / kSegment;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0, "whole passes keep a thread's spread");
  const int row = thread / kSegment, chunk = thread % kSegment;
  const unsigned to = tile + Layout::Offset(row, chunk);
  const unsigned short* start = from.data + (first + row) * from.stride + chunk * 8;
#pragma unroll
  for (int pass = 0; pass < kRows / kStep; ++pass) {
    const int r = first + row + pass * kStep;
#pragma unroll
    for (int s = 0; s < kCols / 8 / kSegment; ++s) {
      const unsigned at = to + pass * kStep * Layout::kRowBytes + s * kSegment * 16;
      const int column = (chunk + s * kSegment) * 8;
      if constexpr (kVector) {
        const bool inside = r < from.rows && column < from.columns;
        const unsigned short* p = start + pass * kStep * from.stride + s * kSegment * 8;
        CopyAsync16(at, inside ? p : from.data, inside);
      } else {
        StoreShared16(at, LoadElements(from, r, column));
      }
    }
  }
}

// Writes rows first .. of a tile to global memory, as far as it has them.
template <int kRows, int kCols, int kThreads, bool kVector>
__device__ __forceinline__ void StoreTile(unsigned short* to, int64 stride, int rows, int columns,
                                          unsigned tile, int first, int thread) {
  constexpr int kChunks = kCols / 8;
  for (int i = thread; i < kRows * kChunks; i += kThreads) {
    const int local = i / kChunks, column = i % kChunks * 8, row = first + local;
    if (row >= rows || column >= columns) continue;
    const uint4 word = LoadShared16(tile + Tile<kCols>::Chunk(local, i % kChunks));
    unsigned short* at = to + row * stride + column;
    if constexpr (kVector) {
      *reinterpret_cast<uint4*>(at) = word;
    } else {
      const unsigned words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (column + e < columns) at[e] = static_cast<unsigned short>(words[e / 2] >> (e & 1) * 16);
    }
  }
}

// c[m][n] += the product over 16 * kSteps of rows of A and rows of B: both lie by rows, and the
// product runs along them. `a` is RowsFirst, `b` ChunksFirst.
template <typename T, typename A, typename B, int kSteps, int kM, int kN>
__device__ __forceinline__ void MultiplyRows(float (&c)[kM][kN][4], unsigned a, unsigned b) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    unsigned fa[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) LoadMatrices(fa[m], A::Pair(a, k) + m * 16 * A::kRowBytes);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      unsigned fb[4];
      LoadMatrices(fb, B::Pair(b, k) + n * 8 * B::kRowBytes);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        Multiply<T>(c[m][n], fa[m], fb[0], fb[1]);
        Multiply<T>(c[m][n + 1], fa[m], fb[2], fb[3]);
      }
    }
  }
}

// c[m][n] += a[m] * B for one step of 16 rows of B, which lies by rows while the product runs down
// its columns. `b` is RowsFirst of those rows. Of kGroups warps that share the columns each takes
// every kGroups-th pair of chunks: number g has Group(b, g).
template <typename T, typename B, int kGroups = 1, int kM, int kN>
__device__ __forceinline__ void MultiplyDown(float (&c)[kM][kN][4], const unsigned (&a)[kM][4],
                                             unsigned b) {
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    unsigned fb[4];
    LoadTransposed(fb, B::Pair(b, n / 2 * kGroups));
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      Multiply<T>(c[m][n], a[m], fb[0], fb[1]);
      Multiply<T>(c[m][n + 1], a[m], fb[2], fb[3]);
    }
  }
}

template <int kM, int kN>
__device__ __forceinline__ void Clear(float (&c)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0.0f;
}

}  // namespace attention
