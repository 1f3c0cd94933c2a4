// Codes by a scale for each block, of a matrix and of its transpose, in one read of it. Each way
// has scales of its own, of 128 elements along a row of its codes, or those of tiles of 128 x 128.
//
// A block of 256 threads has a tile of 128 x 128 in registers, as T holds it: every second warp one
// half of its columns. A thread has 4 rows of VEC columns once or more often, as transpose.cuh has
// them. What it finds of its rows and columns meets in shared memory, where each thread then makes
// one scale, of a row or of a column:
//
//   registers -> row_most[2][128], column_most[16][128] -> by_row[128], by_column[128] -> codes
//
// Behind an activation, or a gradient through one, the tile is what that makes, rounded to T: codes
// are those of the result in memory, which it never sees.
#pragma once

#include "block_tile.cuh"

namespace quantize {

// Codes in one direction; null where they are not wanted. Scales of rows of codes lie as
// [part of a row][row], `pitch` rows each, with zeros beyond the last: what products load by TMA.
struct BlockResult {
  unsigned char* codes;
  float* scale_inv;
  bool tiles;  // one for 128 x 128
};

template <int VEC, bool SUMS>
struct BlockScratch {
  using Threads = BlockThreads<VEC>;
  TransposedTile half[2];
  float sums[SUMS ? Threads::kDown : 1][kGroup];
  alignas(16) unsigned row_most[Threads::kParts][kGroup];
  alignas(16) unsigned column_most[Threads::kDown][kGroup];
  alignas(16) float by_row[kGroup];
  alignas(16) float by_column[kGroup];
};

// ---- the scales of a tile ----

// What the threads of a block find of rows and of columns goes to shared memory. Returns the
// largest that this thread has.
template <typename T, int VEC, int PLANES, typename Source, bool SUMS>
__device__ __forceinline__ unsigned FindLargest(const BlockTile<T, VEC, PLANES, Source>& tile,
                                                int plane, BlockScratch<VEC, SUMS>& scratch) {
  using Of = Magnitudes<T, VEC>;
  constexpr int kLanes = kLanesAcross<VEC>;
  unsigned of_column[Of::kWords] = {};
  tile.ForRows(plane, [&](int i, const FourRows<T, VEC>& raw) {
    unsigned of_row[kMicroRows] = {};
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) Of::Join(raw[r], of_row[r], of_column);
    const unsigned mine = LargestOfEach<Of, 1, kLanes>(of_row);
    if (threadIdx.x % (kLanes / 4) == 0)
      scratch.row_most[tile.column / (VEC * kLanes)]
                      [tile.Word(i) * kMicroRows + threadIdx.x % kLanes / (kLanes / 4)] =
          Of::Bits(mine);
  });
  unsigned most = 0;
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    const unsigned bits = Of::Bits(of_column[Of::kPairs ? c / 2 : c], c % 2 != 0);
    most = max(most, bits);
    scratch.column_most[tile.down][tile.column + c] = bits;
  }
  return most;
}

// And the sums of columns.
template <typename T, int VEC, int PLANES, typename Source>
__device__ __forceinline__ void PutSums(const BlockTile<T, VEC, PLANES, Source>& tile, int plane,
                                        BlockScratch<VEC, true>& scratch) {
  float sum[VEC] = {};
  tile.ForRows(plane, [&](int, const FourRows<T, VEC>& raw) {
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) {
      float f[VEC];
      Vector<T, VEC>::Widen(raw[r], f);
#pragma unroll
      for (int c = 0; c < VEC; ++c) sum[c] += f[c];
    }
  });
#pragma unroll
  for (int c = 0; c < VEC; ++c) scratch.sums[tile.down][tile.column + c] = sum[c];
}

// Where a plane of a tile lies in what is made, a matrix of `width` columns.
struct BlockPlace {
  int64 M, width, m0, column;
  unsigned tile_row, tile_column;
};

// That of line first + i of codes, of `lines`, in part `part` of it; or of a tile, part of
// `length`.
__device__ __forceinline__ void StoreScale(const BlockResult& to, float inverse, int i, int64 first,
                                           int64 lines, unsigned tile, int64 length,
                                           unsigned part) {
  const int64 pitch = (lines + 3) / 4 * 4;
  if (to.tiles) {
    if (i == 0) to.scale_inv[tile * ((length + kGroup - 1) / kGroup) + part] = inverse;
  } else if (first + i < pitch) {
    to.scale_inv[part * pitch + first + i] = first + i < lines ? inverse : 0.0f;
  }
}

// Half of the threads make a scale of a row each, the others one of a column.
template <int VEC, bool SUMS>
__device__ __forceinline__ void MakeScales(const BlockPlace& at, const BlockResult& rows,
                                           const BlockResult& columns, const BlockScale& by,
                                           unsigned of_tile, float highest,
                                           BlockScratch<VEC, SUMS>& scratch) {
  const int i = threadIdx.x % kGroup;
  if (threadIdx.x < kGroup) {
    unsigned most = 0;
#pragma unroll
    for (int part = 0; part < BlockThreads<VEC>::kParts; ++part)
      most = max(most, scratch.row_most[part][i]);
    const float inverse = by.Inverse(rows.tiles ? of_tile : most, highest);
    scratch.by_row[i] = 1.0f / inverse;
    if (rows.codes)
      StoreScale(rows, inverse, i, at.m0, at.M, at.tile_row, at.width, at.tile_column);
  } else {
    unsigned most = 0;
#pragma unroll
    for (int part = 0; part < BlockThreads<VEC>::kDown; ++part)
      most = max(most, scratch.column_most[part][i]);
    const float inverse = by.Inverse(columns.tiles ? of_tile : most, highest);
    scratch.by_column[i] = 1.0f / inverse;
    if (columns.codes)
      StoreScale(columns, inverse, i, at.column, at.width, at.tile_column, at.M, at.tile_row);
  }
}

// ---- its codes ----

// Those of four rows by scale(row, column).
template <typename T, int VEC, typename Scale>
__device__ __forceinline__ void CodesOfRows(const FourRows<T, VEC>& raw, bool e5m2,
                                            const Scale& scale,
                                            CodeWords<VEC> (&codes)[kMicroRows]) {
  OfType(e5m2, [&]<typename Q>() {
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) {
      float f[VEC];
      Vector<T, VEC>::Widen(raw[r], f);
#pragma unroll
      for (int c = 0; c < VEC; ++c) f[c] *= scale(r, c);
      Codes<Q, VEC> made;
      made.Of(f, 1.0f);
      codes[r] = made;
    }
  });
}

template <typename T, int VEC, int PLANES, typename Source, bool SUMS>
__device__ __forceinline__ void MakeCodes(const BlockTile<T, VEC, PLANES, Source>& tile, int plane,
                                          const BlockPlace& at, bool e5m2, unsigned char* q,
                                          bool transposed, BlockScratch<VEC, SUMS>& scratch) {
  if (q) q += (at.m0 + tile.Word(0) * kMicroRows) * at.width + at.column + tile.column;
  tile.ForRows(plane, [&](int i, const FourRows<T, VEC>& raw) {
    const int word = tile.Word(i), first = word * kMicroRows;
    CodeWords<VEC> codes[kMicroRows];
    if (q) {
      const float4 by = *reinterpret_cast<const float4*>(scratch.by_row + first);
      const float by_row[kMicroRows] = {by.x, by.y, by.z, by.w};
      CodesOfRows<T>(
          raw, e5m2, [&](int r, int) { return by_row[r]; }, codes);
      StoreRows<Source::kLoose>(codes, q, at.width, tile.columns - tile.column, tile.rows - first);
      q += BlockThreads<VEC>::kDown * kMicroRows * at.width;
    }
    if (!transposed) return;
    float by_column[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) by_column[c] = scratch.by_column[tile.column + c];
    CodesOfRows<T>(
        raw, e5m2, [&](int, int c) { return by_column[c]; }, codes);
    scratch.half[tile.half].Put(tile.column % kTileColumns, word, codes);
  });
}

// Where codes go, and the sums of columns: a row of `partial` for 128 rows; null where unwanted.
struct BlockResults {
  BlockResult rows, columns;
  float* partial;
  BlockScale by;
};

template <typename T, int VEC, int PLANES, typename Source, bool SUMS>
__device__ __forceinline__ void QuantizeTile(const BlockTile<T, VEC, PLANES, Source>& tile,
                                             int plane, const BlockResults& to, bool e5m2,
                                             BlockScratch<VEC, SUMS>& scratch) {
  const BlockPlace at{tile.M,        PLANES * tile.N,
                      tile.m0,       plane * tile.N + tile.n0,
                      tile.tile_row, static_cast<unsigned>((plane * tile.N + tile.n0) / kGroup)};
  if constexpr (SUMS) PutSums(tile, plane, scratch);
  unsigned most = FindLargest(tile, plane, scratch);
  if (to.rows.tiles || to.columns.tiles) {
    most = LargestOfBlock(most);
  } else {
    __syncthreads();
  }
  MakeScales(at, to.rows, to.columns, to.by, most, MostOf(e5m2), scratch);
  __syncthreads();
  MakeCodes(tile, plane, at, e5m2, to.rows.codes, to.columns.codes != nullptr, scratch);
  __syncthreads();
  if (to.columns.codes)
    scratch.half[0].template Store<2>(to.columns.codes + at.column * at.M + at.m0, at.M, tile.rows,
                                      tile.columns);
  if constexpr (SUMS) {
    if (static_cast<int>(threadIdx.x) >= tile.columns) return;
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < BlockThreads<VEC>::kDown; ++part)
      sum += scratch.sums[part][threadIdx.x];
    to.partial[at.tile_row * at.width + at.column + threadIdx.x] = sum;
  }
}

template <int PLANES, typename T, int VEC, typename Source, bool SUMS>
__device__ __forceinline__ void QuantizeBlocks(const Source& source, const BlockResults& to,
                                               int64 M, unsigned across, bool e5m2,
                                               BlockScratch<VEC, SUMS>& scratch,
                                               void* parked = nullptr) {
  const BlockTile<T, VEC, PLANES, Source> tile(source, M, across, parked);
#pragma unroll
  for (int plane = 0; plane < PLANES; ++plane) {
    if (plane > 0) __syncthreads();  // what the plane before left is read
    QuantizeTile(tile, plane, to, e5m2, scratch);
  }
}

// How many blocks a multiprocessor has at once: enough bytes in flight, and registers for a tile of
// each. LOADED: bytes of an element's vectors when they are read, where they may lie anywhere twice
// as many as they have. Elsewhere, and where FP8 is arithmetic, which wants some too, a block takes
// what it needs.
template <int LOADED>
__host__ __device__ constexpr int TilesAtOnce() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  return LOADED > 4 ? 1 : LOADED > 2 ? 2 : 3;
#else
  return 1;
#endif
}

template <typename T, int VEC, bool SUMS>
__global__ void __launch_bounds__(kThreads, (TilesAtOnce<(VEC == 1 ? 4 : Element<T>::kBytes)>()))
    block_transpose(unsigned char* q, float* scale_inv, unsigned char* q_t, float* scale_inv_t,
                    float* partial, const T* x, int64 M, int64 N, unsigned across, bool tiles,
                    bool tiles_t, float epsilon, bool power_of_two, bool e5m2) {
  constexpr int kVec = kTaken<T, VEC>;
  __shared__ BlockScratch<kVec, SUMS> scratch;
  const BlockResults to{
      {q, scale_inv, tiles}, {q_t, scale_inv_t, tiles_t}, partial, {epsilon, power_of_two}};
  const Plain<T, kVec, VEC == 1> source(x, M, N);
  QuantizeBlocks<1, T, kVec>(source, to, M, across, e5m2, scratch);
}

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, (TilesAtOnce<Element<T>::kBytes*(VEC == 1 ? 2 : 1)>()))
    block_activation(unsigned char* q, float* scale_inv, unsigned char* q_t, float* scale_inv_t,
                     const T* x, int64 M, int64 N, unsigned across, bool gated, int function,
                     float limit, float alpha, float offset, bool tiles, bool tiles_t,
                     float epsilon, bool power_of_two, bool e5m2) {
  constexpr int kVec = kTaken<T, VEC>;
  __shared__ BlockScratch<kVec, false> scratch;
  const BlockResults to{
      {q, scale_inv, tiles}, {q_t, scale_inv_t, tiles_t}, nullptr, {epsilon, power_of_two}};
  const Activation how{function, limit, alpha, offset};
  const Activating<T, kVec, VEC == 1> source(x, M, N, gated, how);
  QuantizeBlocks<1, T, kVec>(source, to, M, across, e5m2, scratch);
}

// A gate's second half wants kParkedBytes of `parked`.
template <typename T, int PLANES>
inline constexpr int kParkedBytes = PLANES == 2 ? kGroup* kGroup* Element<T>::kBytes : 0;

template <typename T, int VEC, int PLANES, bool SUMS, bool LOOSE>
__device__ __forceinline__ void BlockActivationGradient(
    const BlockResults& to, const Differentiating<T, VEC, PLANES, LOOSE>& source, int64 M,
    unsigned across, bool e5m2, void* parked) {
  __shared__ BlockScratch<VEC, SUMS> scratch;
  QuantizeBlocks<PLANES, T, VEC>(source, to, M, across, e5m2, scratch, parked);
}

}  // namespace quantize
