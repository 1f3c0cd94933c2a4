// What block_transpose.cuh quantizes: tiles of 128 x 128 of a matrix, or of what an activation or a
// gradient through one makes, in the registers of a block of 256 threads, as T holds them.
//
// Every second warp has one half of the columns. A thread has 4 rows of VEC columns once or more
// often, as transpose.cuh has them, and asks for as many as it has registers for before it looks at
// any: of a matrix and of an activation without a gate for all.
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

// How many rows of a gradient are made at once. On Hopper, where registers are counted, those of
// two planes by twos in a loop, through which they are moved.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
template <int PLANES>
inline constexpr int kRowsMade = PLANES == 1 ? kMicroRows : 2;
#else
template <int PLANES>
inline constexpr int kRowsMade = kMicroRows;
#endif

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
  FourRows<T, VEC> held[Threads::kEach] = {};
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
    Fill(this->source);
  }

  // All vectors are asked for before any is looked at.
  template <bool LOOSE>
  __device__ __forceinline__ void Fill(const Plain<T, VEC, LOOSE>& plain) {
#pragma unroll
    for (int i = 0; i < Threads::kEach; ++i) Load(plain, i, 0, held[i]);
  }

  // All of x before it is looked for which function it is: no load comes before a branch that is
  // behind it. With a gate there are registers for four rows of both.
  template <bool LOOSE>
  __device__ __forceinline__ void Fill(const Activating<T, VEC, LOOSE>& activating) {
    if (activating.gated) {
      Activate<true>(activating);
    } else {
      Fill(activating.Half(0));
      Activate<false>(activating);
    }
  }

  // Four rows after the other become what is held, through which they move: code for all would be
  // as many times as long.
  template <bool GATED, bool LOOSE>
  __device__ __forceinline__ void Activate(const Activating<T, VEC, LOOSE>& activating) {
    OfFunction(activating.how.function, [&]<int FUNCTION>() {
      Activating<T, VEC, LOOSE> known = activating;
      known.how.function = FUNCTION;
      known.gated = GATED;
#pragma unroll 1
      for (int i = 0; i < Threads::kEach; ++i) {
        typename Source::Raw raw[kMicroRows];
        if constexpr (GATED) Load(known, i, 0, raw);
#pragma unroll
        for (int r = 0; r < kMicroRows; ++r) {
          if constexpr (!GATED) raw[r].x = held[0][r];
          float f[VEC];
          known.Widen(raw[r], f);
          MoveIn(r, V::Narrow(f));
        }
      }
    });
  }

  // The same of a gradient; of two planes the second goes where it is parked. Vectors that begin
  // anywhere take twice the registers until they are put together.
  template <bool LOOSE>
  __device__ __forceinline__ void Fill(const Differentiating<T, VEC, PLANES, LOOSE>& gradient) {
    constexpr int kRows = LOOSE ? kMicroRows / PLANES : kMicroRows;
#pragma unroll 1
    for (int i = 0; i < Threads::kEach; ++i) {
      FourRows<T, VEC> made;
#pragma unroll
      for (int first = 0; first < kMicroRows; first += kRows) {
        typename Source::Raw raw[kRows];
        Load(gradient, i, first, raw);
        OfFunction(gradient.how.function, [&]<int FUNCTION>() {
#pragma unroll(kRowsMade <PLANES>)
          for (int row = first; row < first + kRows; ++row) {
            float dz[PLANES][VEC];
            gradient.template Widen<FUNCTION>(raw[0], dz);
            if constexpr (PLANES == 2) Parked(i, row) = V::Narrow(dz[1]);
#pragma unroll
            for (int r = 1; r < kRows; ++r) {
              raw[r - 1] = raw[r];
              made[first + r - 1] = made[first + r];
            }
            made[first + kRows - 1] = V::Narrow(dz[0]);
          }
        });
      }
#pragma unroll
      for (int r = 0; r < kMicroRows; ++r) MoveIn(r, made[r]);
    }
  }

  // `made` becomes row r of the last four; what is held of that row moves up.
  __device__ __forceinline__ void MoveIn(int r, const typename V::Raw& made) {
#pragma unroll
    for (int e = 1; e < Threads::kEach; ++e) held[e - 1][r] = held[e][r];
    held[Threads::kEach - 1][r] = made;
  }

  // Of the i-th four rows of this thread those from `first` on; zeros outside.
  template <int ROWS, typename From>
  __device__ __forceinline__ void Load(const From& from, int i, int first,
                                       typename From::Raw (&raw)[ROWS]) const {
    const int row = i * Threads::kDown * kMicroRows + first, left = columns - column;
    LoadRows(from, row, 0, left, left > 0 ? rows - row - down * kMicroRows : 0, raw);
  }

  __device__ __forceinline__ typename V::Raw& Parked(int i, int r) const {
    return parked[(i * kMicroRows + r) * kThreads + threadIdx.x];
  }

  __device__ __forceinline__ int Word(int i) const { return i * Threads::kDown + down; }

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
