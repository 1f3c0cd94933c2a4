// What block_transpose.cuh quantizes: tiles of 128 x 128 of a matrix, or of what an activation or a
// gradient through one makes, in the registers of a block of 256 threads, as T holds them.
//
// Every second warp has one half of the columns. A thread has 4 rows of VEC columns once or more
// often, as transpose.cuh has them, so that its loads are all under way before it looks at any.
#pragma once

#include "blocks.cuh"
#include "gradient.cuh"

namespace quantize {

// How the threads of a block lie in a half of a tile.
template <int VEC>
struct BlockThreads {
  static constexpr int kAcross = kTileColumns / VEC;
  static constexpr int kDown = kThreads / 2 / kAcross;
  static constexpr int kEach = kTileWords / kDown;                   // words of 4 rows
  static constexpr int kParts = kGroup / (VEC * kLanesAcross<VEC>);  // of a row, a warp's each
};

template <typename T, int VEC>
using FourRows = typename Vector<T, VEC>::Raw[kMicroRows];

// ROWS rows of a source become those of each plane from `first` on, as T holds them.
template <int ROWS, typename T, int VEC, bool LOOSE>
__device__ __forceinline__ void RoundRows(const Plain<T, VEC, LOOSE>&,
                                          const typename Vector<T, VEC>::Raw (&raw)[ROWS],
                                          int first, FourRows<T, VEC> (&made)[1]) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r) made[0][first + r] = raw[r];
}

template <int ROWS, typename T, int VEC, bool LOOSE>
__device__ __forceinline__ void RoundRows(
    const Activating<T, VEC, LOOSE>& source,
    const typename Activating<T, VEC, LOOSE>::Raw (&raw)[ROWS], int first,
    FourRows<T, VEC> (&made)[1]) {
  OfFunction(source.how.function, [&]<int FUNCTION>() {
    // Which function it is, is known then: one choice for all elements.
    Activating<T, VEC, LOOSE> known = source;
    known.how.function = FUNCTION;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float f[VEC];
      known.Widen(raw[r], f);
      made[0][first + r] = Vector<T, VEC>::Narrow(f);
    }
  });
}

// How many rows of a gradient are made at once. On Hopper, where registers are counted, those of
// two planes one after the other in a loop, through which they are moved.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
template <int PLANES>
inline constexpr int kRowsMade = PLANES == 1 ? kMicroRows : 1;
#else
template <int PLANES>
inline constexpr int kRowsMade = kMicroRows;
#endif

template <int ROWS, typename T, int VEC, int PLANES, bool LOOSE>
__device__ __forceinline__ void RoundRows(
    const Differentiating<T, VEC, PLANES, LOOSE>& source,
    typename Differentiating<T, VEC, PLANES, LOOSE>::Raw (&raw)[ROWS], int first,
    FourRows<T, VEC> (&made)[PLANES]) {
  OfFunction(source.how.function, [&]<int FUNCTION>() {
#pragma unroll(kRowsMade <PLANES>)
    for (int i = 0; i < ROWS; ++i) {
      float dz[PLANES][VEC];
      source.template Widen<FUNCTION>(raw[0], dz);
#pragma unroll
      for (int r = 1; r < ROWS; ++r) raw[r - 1] = raw[r];
#pragma unroll
      for (int p = 0; p < PLANES; ++p) {
#pragma unroll
        for (int r = 1; r < ROWS; ++r) made[p][first + r - 1] = made[p][first + r];
        made[p][first + ROWS - 1] = Vector<T, VEC>::Narrow(dz[p]);
      }
    }
  });
}

// The tile of a block of threads: where it is, and what this thread has of it. Of two matrices
// beside one another, which a gate has, the first is in registers; there is no room for the second,
// which a thread parks in shared memory, `parked`, where no other looks at it.
template <typename T, int VEC, int PLANES, typename Source>
struct BlockTile {
  using V = Vector<T, VEC>;
  using Threads = BlockThreads<VEC>;
  Source source;  // from the first element of this thread on
  int64 M, N, m0, n0;
  unsigned tile_row, tile_column;
  int rows, columns;       // that there are
  int half, down, column;  // of this thread; column: in the tile
  FourRows<T, VEC> held[Threads::kEach];
  typename V::Raw* parked;

  __device__ __forceinline__ BlockTile(const Source& source, int64 M, unsigned across, void* memory)
      : source(source), M(M), N(source.N), parked(static_cast<typename V::Raw*>(memory)) {
    tile_row = blockIdx.x / across;
    tile_column = blockIdx.x % across;
    m0 = tile_row * int64{kGroup};
    n0 = tile_column * int64{kGroup};
    rows = static_cast<int>(min(M - m0, int64{kGroup}));
    columns = static_cast<int>(min(N - n0, int64{kGroup}));
    const int warp = threadIdx.x / 32, thread = warp / 2 * 32 + threadIdx.x % 32;
    half = warp % 2;
    down = thread / Threads::kAcross;
    column = half * kTileColumns + thread % Threads::kAcross * VEC;
    this->source = source.From(m0 + down * kMicroRows, n0 + column);
#pragma unroll
    for (int i = 0; i < Threads::kEach; ++i) {
      FourRows<T, VEC> made[PLANES];
      Make(i, made);
#pragma unroll
      for (int r = 0; r < kMicroRows; ++r) {
        held[i][r] = made[0][r];
        if constexpr (PLANES == 2) Parked(i, r) = made[1][r];
      }
    }
  }

  __device__ __forceinline__ typename V::Raw& Parked(int i, int r) const {
    return parked[(i * kMicroRows + r) * kThreads + threadIdx.x];
  }

  __device__ __forceinline__ int Word(int i) const { return i * Threads::kDown + down; }

  // The i-th four rows of this thread; zeros outside. Of two planes half of them at once, for whose
  // vectors there are registers.
  __device__ __forceinline__ void Make(int i, FourRows<T, VEC> (&made)[PLANES]) const {
    constexpr int kRows = kMicroRows / PLANES;
#pragma unroll
    for (int first = 0; first < kMicroRows; first += kRows) {
      typename Source::Raw raw[kRows];
      const int row = i * Threads::kDown * kMicroRows + first;
      const int left = columns - column, there = left > 0 ? rows - row - down * kMicroRows : 0;
      LoadRows(source, row, 0, left, there, raw);
      RoundRows(source, raw, first, made);
    }
  }

  // use(i, four rows) for all fours of this thread, of one plane.
  template <typename Use>
  __device__ __forceinline__ void ForRows(int plane, const Use& use) const {
#pragma unroll
    for (int i = 0; i < Threads::kEach; ++i) {
      if (plane == 0) {
        use(i, held[i]);
      } else {
        FourRows<T, VEC> again;
#pragma unroll
        for (int r = 0; r < kMicroRows; ++r) again[r] = Parked(i, r);
        use(i, again);
      }
    }
  }
};

}  // namespace quantize
