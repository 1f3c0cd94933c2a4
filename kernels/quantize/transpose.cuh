// Codes of an M x N view row by row, column by column (transposed), or both, in one pass, with the
// sums of columns.
//
// A block of 256 threads takes tiles of 128 rows and 64 columns, below one another. A thread has 4
// rows of VEC columns, so that 4 codes of a column make a word, and a column of a tile 32 words:
//
//   x tile          words in shared memory             q_t
//   128 x 64   ->   64 columns x 32 words, swizzled ->  64 rows of 128 bytes
//
// The four words of 16 rows stay together, at chunk (rows / 16) ^ (column / 8) of their column, so
// that neither the writing nor the reading lanes meet in a bank. Where a row of q_t does not begin
// at a multiple of 16 bytes, what it has of these is put together of two chunks, and its ends are
// written byte by byte.
#pragma once

#include "vector.cuh"

namespace quantize {

inline constexpr int kTileRows = 128, kTileColumns = 64, kTileWords = kTileRows / 4;
inline constexpr int kMicroRows = 4;  // of a thread

// How many lanes of a warp are along a row of a tile.
template <int VEC>
inline constexpr int kLanesAcross = kTileColumns / VEC < 32 ? kTileColumns / VEC : 32;

// Elements of a plain tensor [M, N]; LOOSE: that begin anywhere.
template <typename T, int VEC, bool LOOSE = false>
struct Plain {
  using V = Vector<T, VEC>;
  using In = Elements<T, VEC, LOOSE>;
  using Loaded = typename In::Loaded;
  using Raw = typename V::Raw;
  static constexpr bool kLoose = LOOSE;
  In x;
  int64 N;

  __device__ __forceinline__ Plain(const T* x, int64 M, int64 N) : x(x, M * N), N(N) {}
  __device__ __forceinline__ Plain(const In& x, int64 N) : x(x), N(N) {}
  // A vector of a row that has `left` more elements, as it was read and as it is.
  __device__ __forceinline__ Loaded Load(int64 row, int64 column, int left) const {
    return x.Load(row * N + column, left);
  }
  __device__ static __forceinline__ Raw Whole(const Loaded& loaded, const typename In::Kept& kept) {
    return In::Whole(loaded, kept);
  }
  // The same with its beginning there.
  __device__ __forceinline__ Plain From(int64 row, int64 column) const {
    return {x.From(row * N + column), N};
  }
  __device__ __forceinline__ void Widen(const Raw& raw, float (&f)[VEC]) const { V::Widen(raw, f); }
};

// ROWS vectors below one another, of which the first `there` are in the tensor; else zeros. All are
// asked for before any is looked at.
template <int ROWS, typename Source>
__device__ __forceinline__ void LoadRows(const Source& source, int64 row, int64 column, int left,
                                         int64 there, typename Source::Raw (&raw)[ROWS]) {
  typename Source::Loaded loaded[ROWS];
  Source at = source.From(row, column);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    loaded[r] = {};
    if (r < there) loaded[r] = at.Load(0, 0, left);
    at = at.From(1, 0);  // by an addition
  }
  const typename Source::In::Kept kept(left);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) raw[r] = Source::Whole(loaded[r], kept);
}

// Four words of four codes, transposed: word[r] has columns 0 to 3 of row r, then rows 0 to 3 of
// column r.
__device__ __forceinline__ void TransposeWords(unsigned (&word)[4]) {
  const unsigned low01 = __byte_perm(word[0], word[1], 0x5140);
  const unsigned high01 = __byte_perm(word[0], word[1], 0x7362);
  const unsigned low23 = __byte_perm(word[2], word[3], 0x5140);
  const unsigned high23 = __byte_perm(word[2], word[3], 0x7362);
  word[0] = __byte_perm(low01, low23, 0x5410);
  word[1] = __byte_perm(low01, low23, 0x7632);
  word[2] = __byte_perm(high01, high23, 0x5410);
  word[3] = __byte_perm(high01, high23, 0x7632);
}

// The codes of a tile, transposed, in shared memory.
struct TransposedTile {
  alignas(16) unsigned words[kTileColumns * kTileWords];

  __device__ static __forceinline__ int Place(int column, int word) {
    return column * kTileWords + (((word / 4) ^ (column / 8 % 8)) * 4) + word % 4;
  }

  // The codes of rows 4 * word to 4 * word + 3 and of VEC columns, all of the same eight.
  template <int VEC>
  __device__ __forceinline__ void Put(int column, int word, const CodeWords<VEC> (&rows)[4]) {
    static_assert(8 % VEC == 0, "one place of the swizzle");
    unsigned* const to = words + Place(column, word);
#pragma unroll
    for (int four = 0; four < VEC / 4; ++four) {
      unsigned block[4] = {rows[0].word[four], rows[1].word[four], rows[2].word[four],
                           rows[3].word[four]};
      TransposeWords(block);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[(4 * four + i) * kTileWords] = block[i];
    }
  }

  // Writes `columns` rows of q_t, of which TILES tiles beside one another, `this` the first, have
  // `rows` bytes each, `pitch` bytes apart.
  template <int TILES = 1>
  __device__ __forceinline__ void Store(unsigned char* q_t, int64 pitch, int rows,
                                        int columns) const {
    const unsigned misaligned = static_cast<unsigned>(reinterpret_cast<int64>(q_t) | pitch | rows);
    if (misaligned % 16 == 0) {
      const int first = threadIdx.x / 8, chunk = threadIdx.x % 8;
      unsigned char* to = q_t + first * pitch + chunk * 16;
      const int there = chunk * 16 < rows ? columns - first : 0;
#pragma unroll
      for (int c = 0; c < TILES * kTileColumns; c += kThreads / 8) {
        const unsigned* from = this[c / kTileColumns].words;
        if (c < there)
          StoreStream(to, *reinterpret_cast<const uint4*>(
                              from + Place(c % kTileColumns + first, chunk * 4)));
        to += kThreads / 8 * pitch;
      }
      return;
    }
#pragma unroll 1
    for (int t = 0; t < TILES; ++t) {
      unsigned char* const to = q_t + t * kTileColumns * pitch;
      const int left = min(columns - t * kTileColumns, kTileColumns);
      this[t].StoreMiddles(to, pitch, rows, left);
      this[t].StoreEnds(to, pitch, rows, left);
    }
  }

  // How many bytes there are before the first multiple of 16.
  __device__ static __forceinline__ int Head(const unsigned char* to) {
    return static_cast<int>(-reinterpret_cast<int64>(to) & 15);
  }

  // The 16 bytes at multiples of 16 that rows of q_t have whole.
  __device__ __forceinline__ void StoreMiddles(unsigned char* q_t, int64 pitch, int rows,
                                               int columns) const {
    const int chunk = threadIdx.x % 8;
#pragma unroll 1
    for (int c = threadIdx.x / 8; c < columns; c += kThreads / 8) {
      unsigned char* to = q_t + c * pitch;
      const int head = Head(to), first = head + 16 * chunk;
      if (first + 16 > rows) continue;
      const auto part = [&](int at) {
        return *reinterpret_cast<const uint4*>(words + Place(c, min(at, 7) * 4));
      };
      StoreStream(to + first, BytesFrom(part(chunk), part(chunk + 1), head));
    }
  }

  // The bytes before and behind these, mostly 16 of a row of q_t.
  __device__ __forceinline__ void StoreEnds(unsigned char* q_t, int64 pitch, int rows,
                                            int columns) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(words);
#pragma unroll 1
    for (int c = threadIdx.x / 16; c < columns; c += kThreads / 16) {
      unsigned char* to = q_t + c * pitch;
      const int head = min(Head(to), rows), middle = (rows - head) / 16 * 16;
#pragma unroll 1
      for (int i = threadIdx.x % 16; i < rows - middle; i += 16) {
        const int row = i < head ? i : i + middle;
        to[row] = bytes[4 * Place(c, row / 4) + row % 4];
      }
    }
  }
};

// The sums of VEC columns that a thread has, of those of the block: one row of `partial`. Always
// added in the same order. All threads call it.
template <int VEC>
__device__ __forceinline__ void SumColumns(float (&sum)[VEC], float* partial, int columns) {
  constexpr int kAcross = kTileColumns / VEC;                      // threads beside one another
  constexpr int kRows = kThreads / (kAcross < 32 ? 32 : kAcross);  // that remain of each column
  __shared__ float sums[kRows][kTileColumns];
  if constexpr (kAcross < 32) {
#pragma unroll
    for (int lanes = kAcross; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) sum[i] += __shfl_xor_sync(kAllLanes, sum[i], lanes);
    }
  }
  const int column = threadIdx.x % kAcross * VEC;
  if (kAcross >= 32 || threadIdx.x % 32 < kAcross) {
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      sums[threadIdx.x / (kAcross < 32 ? 32 : kAcross)][column + i] = sum[i];
  }
  __syncthreads();
  const int c = threadIdx.x;
  if (c >= columns) return;
  float all = sums[0][c];
  for (int i = 1; i < kRows; ++i) all += sums[i][c];
  partial[c] = all;
}

// What a thread finds in its tiles.
template <int VEC>
struct Found {
  unsigned most = 0;
  float sum[VEC] = {};
};

// How many elements a row of a tile has from `column` on; none below 1.
__device__ __forceinline__ int LeftOf(int64 N, int64 column) {
  return static_cast<int>(min(N - column, int64{kTileColumns}));
}

// Codes of kMicroRows rows of q, of which `there` are in it; q is null where they are unwanted.
template <bool LOOSE, int VEC>
__device__ __forceinline__ void StoreRows(const CodeWords<VEC> (&codes)[kMicroRows],
                                          unsigned char* q, int64 pitch, int left, int64 there) {
  if (!q) return;
#pragma unroll
  for (int r = 0; r < kMicroRows; ++r)
    StoreInRow<kLanesAcross<VEC>, LOOSE>(codes[r], q + r * pitch, r < there ? left : 0);
}

// kMicroRows rows of a source, from `row` on, become codes.
template <int VEC, typename Source>
__device__ __forceinline__ void QuantizeRows(const Source& source, int64 row, int64 column, int64 M,
                                             float by, bool e5m2, unsigned char* q,
                                             CodeWords<VEC> (&codes)[kMicroRows],
                                             Found<VEC>& found) {
  typename Source::Raw raw[kMicroRows];
  const int left = LeftOf(source.N, column);
  const int64 there = left > 0 ? M - row : 0;
  LoadRows(source, row, column, left, there, raw);
  OfType(e5m2, [&]<typename Q>() {
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) {
      float f[VEC];
      source.Widen(raw[r], f);
      found.most = Largest(found.most, f);
#pragma unroll
      for (int i = 0; i < VEC; ++i) found.sum[i] += f[i];
      Codes<Q, VEC> made;
      made.Of(f, by);
      codes[r] = made;
    }
  });
  StoreRows<Source::kLoose>(codes, q ? q + row * source.N + column : q, source.N, left, there);
}

// Where what is made of tiles goes. Codes by rows, transposed ones and sums may be unwanted: null.
// `partial` has a row of N sums for each part of the rows.
struct TiledResult {
  unsigned char *q, *q_t;
  float *largest, *scale_inv, *partial;
  TransposedTile* tile;  // two of them
};

// Where the tiles of a block are. Blocks are counted along the columns first; each takes `tiles`
// tiles below one another, its part of the rows.
struct BlockTiles {
  int64 M, N;
  int tiles, part, columns;
  int64 n0;

  __device__ __forceinline__ BlockTiles(int64 M, int64 N, int tiles) : M(M), N(N), tiles(tiles) {
    const int across = max(1, static_cast<int>((N + kTileColumns - 1) / kTileColumns));
    part = blockIdx.x / across;
    n0 = int64{static_cast<int>(blockIdx.x) % across} * kTileColumns;
    columns = static_cast<int>(min(N - n0, int64{kTileColumns}));
  }
};

// rows(row, column, codes) makes the codes of kMicroRows rows, of PLANES matrices; where q_t is
// wanted they are transposed on their way to it, one matrix below the other. All threads call it.
template <int VEC, int PLANES, typename Rows>
__device__ __forceinline__ void ForTiles(const BlockTiles& at, unsigned char* q_t,
                                         TransposedTile* tile, const Rows& rows) {
  constexpr int kAcross = kTileColumns / VEC, kDown = kThreads / kAcross;
  const int column = threadIdx.x % kAcross * VEC;
  for (int t = 0; t < at.tiles; ++t) {
    const int64 m0 = (int64{at.part} * at.tiles + t) * kTileRows;
    if (m0 >= at.M) break;
    TransposedTile* const into = tile + t % 2 * PLANES;
    for (int word = threadIdx.x / kAcross; word < kTileWords; word += kDown) {
      CodeWords<VEC> codes[PLANES][kMicroRows];
      rows(m0 + word * kMicroRows, at.n0 + column, codes);
      if (!q_t) continue;
#pragma unroll
      for (int p = 0; p < PLANES; ++p) into[p].Put(column, word, codes[p]);
    }
    if (!q_t) continue;
    __syncthreads();
    const int high = static_cast<int>(min(at.M - m0, int64{kTileRows}));
#pragma unroll
    for (int p = 0; p < PLANES; ++p)
      into[p].Store(q_t + (p * at.N + at.n0) * at.M + m0, at.M, high, at.columns);
  }
}

template <int VEC, typename Source>
__device__ __forceinline__ void QuantizeTiles(const Source& source, const TiledResult& to,
                                              const float* scale, int64 M, int tiles, bool e5m2) {
  WaitForEarlierKernels();
  const float by = ScaleOf(scale, to.largest, MostOf(e5m2));
  if (blockIdx.x == 0 && threadIdx.x == 0) *to.scale_inv = 1.0f / by;
  const BlockTiles at(M, source.N, tiles);
  Found<VEC> found;
  ForTiles<VEC, 1>(at, to.q_t, to.tile, [&](int64 row, int64 column, auto& codes) {
    QuantizeRows<VEC>(source, row, column, M, by, e5m2, to.q, codes[0], found);
  });
  if (scale) KeepLargest(found.most, to.largest);
  if (to.partial && M > 0)
    SumColumns(found.sum, to.partial + at.part * source.N + at.n0, at.columns);
}

// How many blocks a multiprocessor has at once, for which registers must do on Hopper: enough bytes
// in flight. Elsewhere, and where FP8 is arithmetic, which wants some too, a block takes what it
// needs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr int kTilesAtOnce = 3;
#else
inline constexpr int kTilesAtOnce = 1;
#endif

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, kTilesAtOnce)
    cast_transpose(unsigned char* q, unsigned char* q_t, float* largest, float* scale_inv,
                   float* partial, const T* x, const float* scale, int64 M, int64 N, int tiles,
                   bool e5m2) {
  __shared__ TransposedTile tile[2];
  const TiledResult to{q, q_t, largest, scale_inv, partial, tile};
  constexpr int kVec = kTaken<T, VEC>;
  const Plain<T, kVec, VEC == 1> source(x, M, N);
  QuantizeTiles<kVec>(source, to, scale, M, tiles, e5m2);
}

// dbias = T(the sum of each column of partial). A block has 32 columns, its 8 warps every eighth
// part.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_parts(T* dbias, const float* partial, int64 N, int64 parts) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float sums[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64 column = blockIdx.x * int64{32} + lane;
  float sum = 0.0f;
  WaitForEarlierKernels();
  if (column < N)
    for (int64 p = warp; p < parts; p += kWarps) sum += partial[p * N + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= N) return;
  for (int i = 1; i < kWarps; ++i) sum += sums[i][lane];
  kbundle::device::StoreOne<T>(dbias, column, sum);
}

}  // namespace quantize
