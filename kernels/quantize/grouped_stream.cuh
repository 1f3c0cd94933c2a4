// Codes of rows in groups that are not transposed, and the largest magnitude of each group: a
// stream of vectors as in stream.cuh, whose scale changes between rows.
//
// A block takes N * 256 vectors that follow one another, so rows that do, and mostly all are of one
// group. It asks for its vectors first, and finds the groups of its first and last row by a search
// while they are on their way. Where these are one group, the rest is stream.cuh, and one atomic
// maximum a block; where a group ends among them each vector looks for its own between the two.
// Vectors are those of the tensor, whatever its rows: one in which a group ends, and what is left
// behind the last, is taken element by element.
#pragma once

#include "grouped.cuh"

namespace quantize {

// Vectors of single elements may be more than 32 bits count.
template <int VEC>
struct Counted {
  using Type = unsigned;
};
template <>
struct Counted<1> {
  using Type = int64;
};

// The N vectors of each thread of a block, of `count` elements, of which `across` make a row.
template <int VEC, int N>
struct GroupedRun {
  using Count = typename Counted<VEC>::Type;
  int64 first, count;  // elements: the block's first
  Count whole, begin;  // vectors
  unsigned across, column;
  int row;

  __device__ __forceinline__ GroupedRun(int64 count, unsigned across)
      : first(blockIdx.x * int64{N * kThreads * VEC}),
        count(count),
        whole(static_cast<Count>(count / VEC)),
        begin(static_cast<Count>(blockIdx.x) * Count{N * kThreads}),
        across(across),
        column(static_cast<unsigned>(static_cast<unsigned long long>(first) % across)),
        row(static_cast<int>(static_cast<unsigned long long>(first) / across)) {}
  __device__ __forceinline__ Count At(int i) const { return begin + i * kThreads + threadIdx.x; }
  // How many elements the vector is behind the block's first.
  __device__ __forceinline__ unsigned Behind(int i) const {
    return (i * kThreads + threadIdx.x) * VEC;
  }
  __device__ __forceinline__ int RowOf(unsigned behind) const {
    return row + static_cast<int>((column + behind) / across);
  }
  // How many there are.
  __device__ __forceinline__ unsigned Elements() const {
    return static_cast<unsigned>(min(count - first, int64{N * kThreads * VEC}));
  }
};

// Into amax[of], for lanes whose groups only grow along a warp. All lanes call it.
__device__ __forceinline__ void KeepOfGroups(unsigned most, int of, float* amax, int G) {
  const bool one = __shfl_sync(kAllLanes, of, 0) == __shfl_sync(kAllLanes, of, 31);
  if (one) most = LargestOfLanes<32>(most);
  if (!one || threadIdx.x % 32 == 0) KeepOfGroup(most, of, amax, G);
}

template <int VEC>
__device__ __forceinline__ void StoreCodes(void* q, int64 at, const float (&f)[VEC], float by,
                                           bool e5m2) {
  OfType(e5m2, [&]<typename Q>() {
    Codes<Q, VEC> codes;
    codes.Of(f, by);
    codes.Store(q, at);
  });
}

// Where groups are known, and where codes and the largest go. q is null where only these are
// wanted, which are kept, in largest[G], which began as 0, where `keep`.
struct GroupedStream {
  unsigned char* q;
  float* largest;
  bool keep;
  const int* offsets;
  const float* scale;
  int G;
  bool e5m2;

  __device__ __forceinline__ float ScaleOf(int g) const {
    return q && g < G ? ScaleOfGroup(scale, largest, g, MostOf(e5m2)) : 1.0f;
  }
};

// Elements begin to end of a block, one after the other, whose groups are low to high.
template <typename T, typename Run>
__device__ __forceinline__ void OneByOne(const GroupedStream& to, const T* x, const Run& run,
                                         unsigned begin, unsigned end, int low, int high) {
#pragma unroll 1
  for (unsigned at = begin; at < end; ++at) {
    const int of = GroupOfRow(to.offsets, low, high, run.RowOf(at));
    const float one[1] = {of < to.G ? kbundle::device::LoadOne<T>(x, run.first + at) : 0.0f};
    if (to.keep) KeepOfGroup(Largest(0u, one), of, to.largest, to.G);
    if (to.q) StoreCodes(to.q, run.first + at, one, to.ScaleOf(of), to.e5m2);
  }
}

// The vectors of a block of one group.
template <int VEC, int N, typename V>
__device__ __forceinline__ void StreamGroup(const GroupedStream& to, const GroupedRun<VEC, N>& run,
                                            const typename V::Raw (&raw)[N], int group) {
  const float by = to.ScaleOf(group);
  unsigned most = 0;
  OfType(to.e5m2, [&]<typename Q>() {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float f[VEC];
      V::Widen(raw[i], f);
      most = Largest(most, f);
      Codes<Q, VEC> codes;
      codes.Of(f, by);
      if (to.q && run.At(i) < run.whole) codes.Store(to.q, run.At(i));
    }
  });
  if (to.keep) KeepLargest(most, to.largest + group);
}

// q = code(x * scale of its group).
template <typename T, int VEC, int N>
__device__ __forceinline__ void StreamGroups(const GroupedStream& to, const T* x, int64 count,
                                             unsigned across) {
  using V = Vector<T, VEC>;
  const GroupedRun<VEC, N> run(count, across);
  typename V::Raw raw[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    raw[i] = run.At(i) < run.whole ? V::Load(x, run.At(i)) : typename V::Raw{};
  const unsigned elements = run.Elements();
  const int last_row = run.RowOf(elements - 1);
  const int group = GroupOfRow(to.offsets, 0, to.G, run.row);
  const int last = group == to.G || last_row < to.offsets[group + 1]
                       ? group
                       : GroupOfRow(to.offsets, group + 1, to.G, last_row);
  if (threadIdx.x == 0) OneByOne(to, x, run, elements / VEC * VEC, elements, group, last);
  if (group == last && group < to.G) {
    StreamGroup<VEC, N, V>(to, run, raw, group);
    return;
  }
  unsigned ending = 0;  // which vectors a group ends in
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool inside = run.At(i) < run.whole;
    const unsigned behind = run.Behind(i);
    const int of = inside ? GroupOfRow(to.offsets, group, last, run.RowOf(behind)) : to.G;
    const bool ends = of < to.G && run.RowOf(behind + VEC - 1) >= to.offsets[of + 1];
    float f[VEC];
    V::Widen(raw[i], f);
#pragma unroll
    for (int c = 0; c < VEC; ++c) f[c] = of < to.G && !ends ? f[c] : 0.0f;
    if (to.keep) KeepOfGroups(Largest(0u, f), of, to.largest, to.G);
    if (to.q && inside && !ends) StoreCodes(to.q, run.At(i), f, to.ScaleOf(of), to.e5m2);
    if (ends) ending |= 1u << i;
  }
#pragma unroll 1
  for (int i = 0; ending != 0; ++i, ending >>= 1)
    if (ending & 1u) OneByOne(to, x, run, run.Behind(i), run.Behind(i) + VEC, group, last);
}

// As kTilesAtOnce.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr int kGroupedRunsAtOnce = 5;
#else
inline constexpr int kGroupedRunsAtOnce = 1;
#endif

// amax[g], which began as 0: the largest magnitude of the rows of g.
template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads, kGroupedRunsAtOnce)
    grouped_amax(float* amax, const T* x, const int* offsets, int64 count, unsigned across, int G) {
  WaitForEarlierKernels();
  if (count == 0) return;
  const GroupedStream to{nullptr, amax, true, offsets, nullptr, G, false};
  StreamGroups<T, VEC, N>(to, x, count, across);
}

// Without scales they are those of `largest`, which then are there already.
template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads, kGroupedRunsAtOnce)
    stream_groups(unsigned char* q, float* largest, float* scale_inv, const T* x,
                  const int* offsets, const float* scale, int64 count, unsigned across, int G,
                  bool e5m2) {
  WaitForEarlierKernels();
  const GroupedStream to{q, largest, scale != nullptr, offsets, scale, G, e5m2};
  if (blockIdx.x == 0) {
#pragma unroll 1
    for (int g = threadIdx.x; g < G; g += kThreads)
      scale_inv[g] = 1.0f / ScaleOfGroup(scale, largest, g, MostOf(e5m2));
  }
  if (count == 0) return;
  StreamGroups<T, VEC, N>(to, x, count, across);
}

}  // namespace quantize
