// Codes of rows that belong to groups, by one scale for each group. How many rows each group has
// only the device knows, so nothing that is launched depends on it: two small kernels turn sizes,
// whatever they are, into the group of each row, and blocks take the tiles of transpose.cuh as if
// there were no groups.
//
//   sizes[G] -> offsets[G + 1] -> group_of[M, padded to 4 rows], G where a row is of none
//
// The four rows of a thread have a scale each. A warp has up to 16 rows that follow one another:
// mostly they are of one group, whose largest magnitude then stays in registers until another
// group comes; where a group ends among them each row is looked at by itself.
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

// group_of[row], by a search among offsets; G behind the last group and behind M.
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    group_rows(int* group_of, const int* offsets, int G, int M) {
  const int row = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
  if (row >= (M + 3) / 4 * 4) return;
  int low = 0, high = G;  // the group is one of low to high
  while (low < high) {
    const int middle = (low + high) / 2;
    if (row < offsets[middle + 1]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  group_of[row] = low;
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

  // rows[r]: the largest of what this thread has of its row r. Lanes are along a row first, ACROSS
  // of them, and lane 31 has the last row of all.
  template <int ACROSS>
  __device__ __forceinline__ void Add(const unsigned (&rows)[kMicroRows],
                                      const FourGroups& groups) {
    const int first = __shfl_sync(kAllLanes, groups.of[0], 0);
    const int last = __shfl_sync(kAllLanes, groups.of[kMicroRows - 1], 31);
    if (first != group || first != last) Flush();
    if (first == last) {
      group = first;
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
    group = G;
    most = 0;
  }
  __device__ __forceinline__ void Keep(unsigned found, int of) const {
    if (found > kInfinity) found = 0x7fc00000u;  // one NaN for all
    if (of < G && found != 0) atomicMax(reinterpret_cast<unsigned*>(amax + of), found);
  }
};

// Loads and widens kMicroRows rows and calls use(r, floats) for each; those of no group are 0.
template <int VEC, typename Source, typename Use>
__device__ __forceinline__ void ForGroupedRows(const Source& source, int64 row, int64 column,
                                               int64 M, int G, const FourGroups& groups,
                                               const Use& use) {
  typename Source::Raw raw[kMicroRows];
  const int64 there = column < source.N ? M - row : 0;
#pragma unroll
  for (int r = 0; r < kMicroRows; ++r)
    raw[r] = r < there ? source.Load(row + r, column) : typename Source::Raw{};
#pragma unroll
  for (int r = 0; r < kMicroRows; ++r) {
    float f[VEC];
    source.Widen(raw[r], f);
#pragma unroll
    for (int i = 0; i < VEC; ++i) f[i] = groups.of[r] < G ? f[i] : 0.0f;
    use(r, f);
  }
}

// How many lanes of a warp are along a row of a tile.
template <int VEC>
inline constexpr int kLanesAcross = kTileColumns / VEC < 32 ? kTileColumns / VEC : 32;

// amax[g], which began as 0: the largest magnitude of the rows of g.
template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads)
    grouped_amax(float* amax, const T* x, const int* group_of, int64 M, int64 N, int G, int tiles) {
  constexpr int kAcross = kTileColumns / VEC, kRows = kThreads / kAcross * kMicroRows;
  const Plain<T, VEC> source{x, N};
  const BlockTiles at(M, N, tiles);
  const int64 column = at.n0 + threadIdx.x % kAcross * VEC;
  const int64 begin = int64{at.part} * tiles * kTileRows, end = min(M, begin + tiles * kTileRows);
  GroupedLargest largest(amax, G);
  for (int64 base = begin; base < end; base += kRows) {
    const int64 row = base + threadIdx.x / kAcross * kMicroRows;
    const FourGroups groups(group_of, row, M, G);
    unsigned rows[kMicroRows] = {};
    ForGroupedRows<VEC>(source, row, column, M, G, groups,
                        [&](int r, const float(&f)[VEC]) { rows[r] = Largest(0u, f); });
    largest.Add<kLanesAcross<VEC>>(rows, groups);
  }
  largest.Flush();
}

template <typename Q, int VEC, typename Source>
__device__ __forceinline__ void QuantizeGroups(const Source& source, const TiledResult& to,
                                               const int* group_of, const float* scale, int64 M,
                                               int G, int tiles) {
  const auto scale_of = [&](int g) {
    return ScaleOf<Q>(scale ? scale + g : nullptr, to.largest + g);
  };
  if (blockIdx.x == 0)
    for (int g = threadIdx.x; g < G; g += kThreads) to.scale_inv[g] = 1.0f / scale_of(g);
  GroupedLargest largest(to.largest, G);
  const auto quantize = [&](int64 row, int64 column, auto& codes) {
    const FourGroups groups(group_of, row, M, G);
    const bool all_one = groups.of[0] == groups.of[kMicroRows - 1];
    float by = groups.of[0] < G ? scale_of(groups.of[0]) : 1.0f;
    unsigned rows[kMicroRows] = {};
    ForGroupedRows<VEC>(source, row, column, M, G, groups, [&](int r, const float(&f)[VEC]) {
      rows[r] = Largest(0u, f);
      if (!all_one) by = groups.of[r] < G ? scale_of(groups.of[r]) : 1.0f;
      codes[0][r].Of(f, by);
      if (to.q && row + r < M && column < source.N)
        codes[0][r].Store(to.q, ((row + r) * source.N + column) / VEC);
    });
    if (scale) largest.Add<kLanesAcross<VEC>>(rows, groups);
  };
  ForTiles<Q, VEC, 1>(BlockTiles(M, source.N, tiles), to.q_t, to.tile, quantize);
  if (scale) largest.Flush();
}

template <typename T, int VEC>
__global__ void __launch_bounds__(kThreads)
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
