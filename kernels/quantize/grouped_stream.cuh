// Codes of rows in groups that are not transposed, and the largest magnitude of each group: a
// stream of vectors as in stream.cuh, whose scale changes between rows.
//
// A block takes N * 256 vectors that follow one another, so rows that do, and mostly all are of one
// group. It asks for its vectors first, and finds the groups of its first and last row by a search
// while they are on their way. Where these are one group, the rest is stream.cuh, and one atomic
// maximum a block; where a group ends among them each vector looks for its own between the two.
#pragma once

#include "grouped.cuh"

namespace quantize {

// The vectors of a block: `across` of them make a row. Count is 32 bits wide where they fit, for
// what it divides.
template <typename Count, int N>
struct GroupedRun {
  Count vectors, begin;
  unsigned across, row, column;

  __device__ __forceinline__ GroupedRun(int64 vectors, unsigned across)
      : vectors(static_cast<Count>(vectors)),
        begin(static_cast<Count>(blockIdx.x) * Count{N * kThreads}),
        across(across),
        row(static_cast<unsigned>(begin / across)),
        column(static_cast<unsigned>(begin % across)) {}
  __device__ __forceinline__ Count At(int i) const { return begin + i * kThreads + threadIdx.x; }
  __device__ __forceinline__ int RowOf(unsigned behind) const {
    return static_cast<int>(row + (column + behind) / across);
  }
  __device__ __forceinline__ int LastRow() const {
    return RowOf(static_cast<unsigned>(min(vectors - begin, Count{N * kThreads})) - 1);
  }
};

// Vectors of single elements may be more than 32 bits count.
template <int VEC>
struct Counted {
  using Type = unsigned;
};
template <>
struct Counted<1> {
  using Type = int64;
};

// Into amax[of], for lanes whose groups only grow along a warp. All lanes call it.
__device__ __forceinline__ void KeepOfGroups(unsigned most, int of, float* amax, int G) {
  const bool one = __shfl_sync(kAllLanes, of, 0) == __shfl_sync(kAllLanes, of, 31);
  if (one) most = LargestOfLanes<32>(most);
  if (!one || threadIdx.x % 32 == 0) KeepOfGroup(most, of, amax, G);
}

template <typename Q, int VEC>
__device__ __forceinline__ void StoreCodes(void* q, int64 at, const float (&f)[VEC], float by) {
  Codes<Q, VEC> codes;
  codes.Of(f, by);
  codes.Store(q, at);
}

// q = code(x * scale of its group); null where only the largest are wanted. They are kept where
// `keep`, in largest[G], which began as 0.
template <typename Q, typename T, int VEC, int N>
__device__ __forceinline__ void StreamGroups(void* q, float* largest, bool keep, const T* x,
                                             const int* offsets, const float* scale, int64 vectors,
                                             unsigned across, int G) {
  using V = Vector<T, VEC>;
  const GroupedRun<typename Counted<VEC>::Type, N> run(vectors, across);
  typename V::Raw raw[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    raw[i] = run.At(i) < run.vectors ? V::Load(x, run.At(i)) : typename V::Raw{};
  const int last_row = run.LastRow();
  const int group = GroupOfRow(offsets, 0, G, static_cast<int>(run.row));
  const int last = group == G || last_row < offsets[group + 1]
                       ? group
                       : GroupOfRow(offsets, group + 1, G, last_row);
  if (group == last && group < G) {
    const float by = q ? ScaleOfGroup<Q>(scale, largest, group) : 1.0f;
    unsigned most = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float f[VEC];
      V::Widen(raw[i], f);
      most = Largest(most, f);
      if (q && run.At(i) < run.vectors) StoreCodes<Q>(q, run.At(i), f, by);
    }
    if (keep) KeepLargest(most, largest + group);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool inside = run.At(i) < run.vectors;
    const int of =
        inside ? GroupOfRow(offsets, group, last, run.RowOf(i * kThreads + threadIdx.x)) : G;
    float f[VEC];
    V::Widen(raw[i], f);
#pragma unroll
    for (int c = 0; c < VEC; ++c) f[c] = of < G ? f[c] : 0.0f;
    if (keep) KeepOfGroups(Largest(0u, f), of, largest, G);
    const float by = q && of < G ? ScaleOfGroup<Q>(scale, largest, of) : 1.0f;
    if (q && inside) StoreCodes<Q>(q, run.At(i), f, by);
  }
}

// amax[g], which began as 0: the largest magnitude of the rows of g.
template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads, kGroupedRunsAtOnce)
    grouped_amax(float* amax, const T* x, const int* offsets, int64 vectors, unsigned across,
                 int G) {
  if (vectors == 0) return;
  StreamGroups<__nv_fp8_e4m3, T, VEC, N>(nullptr, amax, true, x, offsets, nullptr, vectors, across,
                                         G);
}

// Without scales they are those of `largest`, which then are there already.
template <typename T, int VEC, int N>
__global__ void __launch_bounds__(kThreads, kGroupedRunsAtOnce)
    stream_groups(unsigned char* q, float* largest, float* scale_inv, const T* x,
                  const int* offsets, const float* scale, int64 vectors, unsigned across, int G,
                  bool e5m2) {
  OfType(e5m2, [=]<typename Q>() {
    if (blockIdx.x == 0)
#pragma unroll 1
      for (int g = threadIdx.x; g < G; g += kThreads)
        scale_inv[g] = 1.0f / ScaleOfGroup<Q>(scale, largest, g);
    if (vectors == 0) return;
    StreamGroups<Q, T, VEC, N>(q, largest, scale != nullptr, x, offsets, scale, vectors, across, G);
  });
}

}  // namespace quantize
