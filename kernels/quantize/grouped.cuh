// Codes of rows that belong to groups, by one scale for each group. How many rows each group has
// only the device knows, so nothing that is launched depends on it: two small kernels turn sizes,
// whatever they are, into the group of each row, and blocks take the tiles of transpose.cuh as if
// there were no groups.
//
//   sizes[G] -> offsets[G + 1] -> group_of[M, padded to 4 rows], G where a row is of none
//
// Scales are those of a thread's four rows, which are looked for while the rows are on their way.
// Where sizes are like those of experts, most tiles of 128 rows may have a row where a group ends,
// and amax of groups lie beside one another, where a GPU takes one maximum after the other: so a
// warp keeps the largest of its group in registers until another group comes, and a block those of
// its groups in shared memory until its end. What is not transposed goes through
// grouped_stream.cuh.
#pragma once

#include "transpose.cuh"

namespace quantize {

// offsets[g]: the first row of group g; the last: of what is left over. A negative size counts as
// 0, and rows end with M. amax[g] begins as 0. One block of THREADS.
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    group_offsets(int* offsets, float* amax, const int* sizes, int G, int M) {
  __shared__ int64 sums[THREADS];
  const int thread = static_cast<int>(threadIdx.x);
  int64 before = 0;  // rows of the groups of earlier rounds
  for (int start = 0; start <= G; start += THREADS) {
    const int g = start + thread;
    const int64 size = g < G ? max(sizes[g], 0) : 0;
    sums[thread] = size;
    __syncthreads();
#pragma unroll 1
    for (int by = 1; by < THREADS; by *= 2) {
      const int64 other = thread >= by ? sums[thread - by] : 0;
      __syncthreads();
      sums[thread] += other;
      __syncthreads();
    }
    if (g < G) amax[g] = 0.0f;
    if (g <= G) offsets[g] = static_cast<int>(min(before + sums[thread] - size, int64{M}));
    before += sums[THREADS - 1];
    __syncthreads();
  }
}

// The group of a row, which is one of low to high, by a search among offsets: G, high where that is
// G, behind the last group and behind M.
__device__ __forceinline__ int GroupOfRow(const int* offsets, int low, int high, int row) {
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (row < offsets[middle + 1]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    group_rows(int* group_of, const int* offsets, int G, int M) {
  const int row = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
  WaitForEarlierKernels();
  if (row < (M + 3) / 4 * 4) group_of[row] = GroupOfRow(offsets, 0, G, row);
}

// That of group g, given or found.
__device__ __forceinline__ float ScaleOfGroup(const float* scale, const float* amax, int g,
                                              float most) {
  return ScaleOf(scale ? scale + g : nullptr, amax + g, most);
}

__device__ __forceinline__ void KeepOfGroup(unsigned found, int of, float* amax, int G) {
  if (found > kInfinity) found = 0x7fc00000u;  // one NaN for all
  if (of < G && found != 0) atomicMax(reinterpret_cast<unsigned*>(amax + of), found);
}

// The groups of the four rows of a thread.
struct FourGroups {
  int of[kMicroRows];

  __device__ __forceinline__ FourGroups(const int* group_of, int64 row, int64 M, int G) {
    const uint4 loaded = row < M ? LoadStream<uint4>(group_of + row)
                                 : uint4{static_cast<unsigned>(G), static_cast<unsigned>(G),
                                         static_cast<unsigned>(G), static_cast<unsigned>(G)};
    const unsigned words[kMicroRows] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) of[r] = static_cast<int>(words[r]);
  }
};

// The largest magnitudes that a block found: a warp's of one group in registers, those of the block
// in kept[kThreads], of the group of its first row and of those behind it; further ones go to
// amax[G] at once, which began as 0. All lanes of a warp call together what it does.
struct GroupedLargest {
  unsigned* kept;
  float* amax;
  int G, first, group;
  unsigned most = 0;

  __device__ __forceinline__ GroupedLargest(unsigned* kept, float* amax, int G, int first)
      : kept(kept), amax(amax), G(G), first(first), group(G) {
    kept[threadIdx.x] = 0;
  }

  // rows[r]: the largest of what this thread has of its row r. Lanes are along a row first, ACROSS
  // of them, and lane 31 has the last row of all.
  template <int ACROSS>
  __device__ __forceinline__ void Add(const unsigned (&rows)[kMicroRows],
                                      const FourGroups& groups) {
    const int low = __shfl_sync(kAllLanes, groups.of[0], 0);
    const int high = __shfl_sync(kAllLanes, groups.of[kMicroRows - 1], 31);
    if (low == high) {
      if (low != group) Flush();
      group = low;
      most = max(max(most, max(rows[0], rows[1])), max(rows[2], rows[3]));
      return;
    }
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) {
      const unsigned of_row = LargestOfLanes<ACROSS>(rows[r]);
      if (threadIdx.x % ACROSS == 0) Keep(of_row, groups.of[r]);
    }
  }
  __device__ __forceinline__ void Flush() {
    const unsigned of_warp = LargestOfLanes<32>(most);
    if (threadIdx.x % 32 == 0) Keep(of_warp, group);
    most = 0;
  }
  __device__ __forceinline__ void Keep(unsigned found, int of) const {
    if (of >= G) return;
    if (of - first < kThreads) {
      atomicMax(kept + (of - first), found);
    } else {
      KeepOfGroup(found, of, amax, G);
    }
  }
  // All threads of the block call it, at its end.
  __device__ __forceinline__ void Finish() {
    Flush();
    __syncthreads();
    if (kept[threadIdx.x] != 0)
      KeepOfGroup(kept[threadIdx.x], first + static_cast<int>(threadIdx.x), amax, G);
  }
};

// Where groups are known, and what their scales are made of.
struct RowGroups {
  const int* of;
  const float *scale, *amax;  // no scale: that of what was found before
  int G;
  float most;

  __device__ __forceinline__ int At(int64 row, int64 M) const { return row < M ? of[row] : G; }
  // Of no group: any number.
  __device__ __forceinline__ float ScaleOf(int g) const {
    return g < G ? ScaleOfGroup(scale, amax, g, most) : 1.0f;
  }
  __device__ __forceinline__ void ScalesOf(const FourGroups& rows, float (&by)[kMicroRows]) const {
    by[0] = ScaleOf(rows.of[0]);
#pragma unroll
    for (int r = 1; r < kMicroRows; ++r) by[r] = by[0];
    if (rows.of[0] == rows.of[kMicroRows - 1]) return;
#pragma unroll
    for (int r = 1; r < kMicroRows; ++r) by[r] = ScaleOf(rows.of[r]);
  }
};

// kMicroRows rows of a tile become codes, of 0 where a row is of no group. `begins` in a block's
// first call.
template <int VEC, typename Source>
__device__ __forceinline__ void QuantizeGroupedRows(const Source& source, int64 row, int64 column,
                                                    int64 M, const RowGroups& groups, bool begins,
                                                    bool e5m2, unsigned char* q,
                                                    CodeWords<VEC> (&codes)[kMicroRows],
                                                    GroupedLargest& largest) {
  const FourGroups of(groups.of, row, M, groups.G);
  typename Source::Raw raw[kMicroRows];
  const int left = LeftOf(source.N, column);
  const int64 there = left > 0 ? M - row : 0;
  LoadRows(source, row, column, left, there, raw);
  if (begins) __syncthreads();  // what is kept is 0
  float by[kMicroRows];
  groups.ScalesOf(of, by);
  unsigned rows[kMicroRows];
  OfType(e5m2, [&]<typename Q>() {
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) {
      if (of.of[r] >= groups.G) raw[r] = {};
      float f[VEC];
      source.Widen(raw[r], f);
      rows[r] = Largest(0u, f);
      Codes<Q, VEC> made;
      made.Of(f, by[r]);
      codes[r] = made;
    }
  });
  StoreRows<Source::kLoose>(codes, q ? q + row * source.N + column : q, source.N, left, there);
  if (groups.scale) largest.Add<kLanesAcross<VEC>>(rows, of);
}

template <int VEC, typename Source>
__device__ __forceinline__ void QuantizeGroups(const Source& source, const TiledResult& to,
                                               const RowGroups& groups, int64 M, int tiles,
                                               bool e5m2) {
  __shared__ unsigned kept[kThreads];
  if (blockIdx.x == 0) {
#pragma unroll 1
    for (int g = threadIdx.x; g < groups.G; g += kThreads)
      to.scale_inv[g] = 1.0f / groups.ScaleOf(g);
  }
  const BlockTiles at(M, source.N, tiles);
  const int64 begin = int64{at.part} * tiles * kTileRows;
  GroupedLargest largest(kept, to.largest, groups.G, groups.At(begin, M));
  bool begins = true;
  ForTiles<VEC, 1>(at, to.q_t, to.tile, [&](int64 row, int64 column, auto& codes) {
    QuantizeGroupedRows<VEC>(source, row, column, M, groups, begins, e5m2, to.q, codes[0], largest);
    begins = false;
  });
  if (groups.scale && begin < M) largest.Finish();
}

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, kTilesAtOnce)
    cast_groups(unsigned char* q, unsigned char* q_t, float* largest, float* scale_inv, const T* x,
                const int* group_of, const float* scale, int64 M, int64 N, int G, int tiles,
                bool e5m2) {
  __shared__ TransposedTile tile[2];
  WaitForEarlierKernels();
  const TiledResult to{q, q_t, largest, scale_inv, nullptr, tile};
  constexpr int kVec = kTaken<T, VEC>;
  const Plain<T, kVec, VEC == 1> source(x, M, N);
  const RowGroups groups{group_of, scale, largest, G, MostOf(e5m2)};
  QuantizeGroups<kVec>(source, to, groups, M, tiles, e5m2);
}

}  // namespace quantize
