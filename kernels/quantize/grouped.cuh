// Codes of rows that belong to groups, by one scale for each group. How many rows each group has
// only the device knows, so nothing that is launched depends on it: two small kernels turn sizes,
// whatever they are, into the group of each row, and blocks take the tiles of transpose.cuh as if
// there were no groups.
//
//   sizes[G] -> offsets[G + 1] -> group_of[M, padded to 4 rows], G where a row is of none
//
// A tile whose rows are all of one group has one scale, and a warp keeps the largest magnitude of
// its group in registers until another group comes; where a group ends in a tile each row is looked
// at by itself. What is not transposed goes through grouped_stream.cuh.
#pragma once

#include "transpose.cuh"

namespace quantize {

// offsets[g]: the first row of group g; the last: of what is left over. A negative size counts as
// 0, and rows end with M. One block of THREADS.
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    group_offsets(int* offsets, const int* sizes, int G, int M) {
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
  if (row < (M + 3) / 4 * 4) group_of[row] = GroupOfRow(offsets, 0, G, row);
}

// That of group g, given or found.
template <typename Q>
__device__ __forceinline__ float ScaleOfGroup(const float* scale, const float* amax, int g) {
  return ScaleOf<Q>(scale ? scale + g : nullptr, amax + g);
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

// The largest magnitudes that a warp found: of one group in registers, of others in amax[G], which
// began as 0. All lanes of a warp call together what it does.
struct GroupedLargest {
  float* amax;
  int G, group;
  unsigned most = 0;

  __device__ __forceinline__ GroupedLargest(float* amax, int G) : amax(amax), G(G), group(G) {}

  // What this thread has of rows that are all of one group.
  __device__ __forceinline__ void Add(unsigned found, int of) {
    if (of != group) Flush();
    group = of;
    most = max(most, found);
  }
  // rows[r]: the largest of what this thread has of its row r, of any group. ACROSS lanes are along
  // a row.
  template <int ACROSS>
  __device__ __forceinline__ void Add(const unsigned (&rows)[kMicroRows],
                                      const FourGroups& groups) const {
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) {
      const unsigned of_row = LargestOfLanes<ACROSS>(rows[r]);
      if (threadIdx.x % ACROSS == 0) KeepOfGroup(of_row, groups.of[r], amax, G);
    }
  }
  __device__ __forceinline__ void Flush() {
    const unsigned of_warp = LargestOfLanes<32>(most);
    if (threadIdx.x % 32 == 0) KeepOfGroup(of_warp, group, amax, G);
    group = G;
    most = 0;
  }
};

// kMicroRows rows of a tile become codes. Mostly all rows of a tile are of one group, which each
// thread sees by the first and the last; else each row has a group of its own, or none: codes of 0.
template <typename Q, int VEC, typename Source>
__device__ __forceinline__ void QuantizeGroupedRows(const Source& source, int64 row, int64 column,
                                                    int64 M, int G, const int* group_of,
                                                    const float* scale, const TiledResult& to,
                                                    Codes<Q, VEC> (&codes)[kMicroRows],
                                                    GroupedLargest& largest) {
  typename Source::Raw raw[kMicroRows];
  const int64 there = column < source.N ? M - row : 0;
#pragma unroll
  for (int r = 0; r < kMicroRows; ++r)
    raw[r] = r < there ? source.Load(row + r, column) : typename Source::Raw{};
  const int64 begin = row / kTileRows * kTileRows;
  const int group = group_of[begin], last = group_of[min(begin + kTileRows, M) - 1];
  unsigned char* const q = to.q + row * source.N + column;
  if (group == last && group < G) {
    const float by = ScaleOfGroup<Q>(scale, to.largest, group);
    unsigned most = 0;
#pragma unroll
    for (int r = 0; r < kMicroRows; ++r) {
      float f[VEC];
      source.Widen(raw[r], f);
      most = Largest(most, f);
      codes[r].Of(f, by);
      if (to.q && r < there) codes[r].Store(q + r * source.N, 0);
    }
    if (scale) largest.Add(most, group);
    return;
  }
  const FourGroups groups(group_of, row, M, G);
  unsigned rows[kMicroRows];
#pragma unroll
  for (int r = 0; r < kMicroRows; ++r) {
    float f[VEC];
    source.Widen(raw[r], f);
    const bool in_group = groups.of[r] < G;
#pragma unroll
    for (int i = 0; i < VEC; ++i) f[i] = in_group ? f[i] : 0.0f;
    rows[r] = Largest(0u, f);
    codes[r].Of(f, in_group ? ScaleOfGroup<Q>(scale, to.largest, groups.of[r]) : 1.0f);
    if (to.q && r < there) codes[r].Store(q + r * source.N, 0);
  }
  if (scale) largest.Add<kLanesAcross<VEC>>(rows, groups);
}

template <typename Q, int VEC, typename Source>
__device__ __forceinline__ void QuantizeGroups(const Source& source, const TiledResult& to,
                                               const int* group_of, const float* scale, int64 M,
                                               int G, int tiles) {
  if (blockIdx.x == 0)
    for (int g = threadIdx.x; g < G; g += kThreads)
      to.scale_inv[g] = 1.0f / ScaleOfGroup<Q>(scale, to.largest, g);
  GroupedLargest largest(to.largest, G);
  const auto quantize = [&](int64 row, int64 column, auto& codes) {
    QuantizeGroupedRows<Q, VEC>(source, row, column, M, G, group_of, scale, to, codes[0], largest);
  };
  ForTiles<Q, VEC, 1>(BlockTiles(M, source.N, tiles), to.q_t, to.tile, quantize);
  if (scale) largest.Flush();
}

// How many blocks a multiprocessor has at once, for which registers must do on Hopper. Elsewhere,
// and where FP8 is arithmetic, which wants some too, a block takes what it needs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr int kGroupedTilesAtOnce = 3, kGroupedRunsAtOnce = 5;
#else
inline constexpr int kGroupedTilesAtOnce = 1, kGroupedRunsAtOnce = 1;
#endif

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads, kGroupedTilesAtOnce)
    cast_groups(unsigned char* q, unsigned char* q_t, float* largest, float* scale_inv, const T* x,
                const int* group_of, const float* scale, int64 M, int64 N, int G, int tiles,
                bool e5m2) {
  __shared__ TransposedTile tile[2];
  const TiledResult to{q, q_t, largest, scale_inv, nullptr, tile};
  OfType(e5m2, [&]<typename Q>() {
    QuantizeGroups<Q, VEC>(Plain<T, VEC>{x, N}, to, group_of, scale, M, G, tiles);
  });
}

}  // namespace quantize
