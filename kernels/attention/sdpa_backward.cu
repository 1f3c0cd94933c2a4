// Backward kernels of attention. The manifest, attention.toml, says which instances exist and where
// each is legal.
//
//   sdpa_backward_delta     delta = sum over columns of o * dout, a number per query
//   sdpa_backward_keys      dk, dv and, unless deterministic, sums of dq in floats
//   sdpa_backward_queries   dq, when deterministic
//   sdpa_backward_convert   float sums, of dq or of the bias, to elements
//
// delta, stats and the sums of dq are [batch, head, query(, column)]; everything else has strides.
#include "backward_keys.cuh"
#include "backward_queries.cuh"

namespace attention {

// Rows of [batch, head, token], 16 lanes each.
struct RowOfHeads {
  int64 row;  // in [batch, head, token]
  int64 offset;
  int lane;

  __device__ __forceinline__ RowOfHeads(int heads, int tokens, const Strides& strides) {
    row = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) / 16;
    lane = threadIdx.x % 16;
    const unsigned all = static_cast<unsigned>(row), of_heads = all / tokens;
    offset = of_heads / heads * strides.batch + of_heads % heads * strides.head +
             all % tokens * strides.token;
  }
};

// Of two words of two elements each.
template <typename T>
__device__ __forceinline__ float Dot(unsigned x, unsigned y) {
  using E = Element<T>;
  return E::Low(x) * E::Low(y) + E::Low(x >> 16) * E::Low(y >> 16);
}

template <typename T, bool kVector>
__global__ void __launch_bounds__(256)
    sdpa_backward_delta(float* delta, const unsigned short* o, const unsigned short* dout,
                        int64 rows, int heads, int queries, int columns,
                        const __grid_constant__ Strides strides) {
  using E = Element<T>;
  const RowOfHeads at(heads, queries, strides);
  float sum = 0.0f;
  if (at.row < rows) {
    const unsigned short *a = o + at.offset, *b = dout + at.offset;
    if constexpr (kVector) {
      for (int c = at.lane * 8; c < columns; c += 128) {
        const uint4 x = *reinterpret_cast<const uint4*>(a + c);
        const uint4 y = *reinterpret_cast<const uint4*>(b + c);
        sum += Dot<T>(x.x, y.x);
        sum += Dot<T>(x.y, y.y);
        sum += Dot<T>(x.z, y.z);
        sum += Dot<T>(x.w, y.w);
      }
    } else {
      for (int c = at.lane; c < columns; c += 16) sum += E::Low(a[c]) * E::Low(b[c]);
    }
  }
#pragma unroll
  for (int other = 8; other > 0; other /= 2) sum += __shfl_xor_sync(kAllLanes, sum, other);
  if (at.row < rows && at.lane == 0) delta[at.row] = sum;
}

template <typename T, bool kVector>
__global__ void __launch_bounds__(256)
    sdpa_backward_convert(unsigned short* to, const float* from, float factor, int64 rows,
                          int heads, int tokens, int columns,
                          const __grid_constant__ Strides strides) {
  using E = Element<T>;
  const RowOfHeads at(heads, tokens, strides);
  if (at.row >= rows) return;
  const float* x = from + at.row * columns;
  unsigned short* y = to + at.offset;
  if constexpr (kVector) {
    for (int c = at.lane * 8; c < columns; c += 128) {
      const float4 a = *reinterpret_cast<const float4*>(x + c);
      const float4 b = *reinterpret_cast<const float4*>(x + c + 4);
      *reinterpret_cast<uint4*>(y + c) = {
          E::Pack(a.x * factor, a.y * factor), E::Pack(a.z * factor, a.w * factor),
          E::Pack(b.x * factor, b.y * factor), E::Pack(b.z * factor, b.w * factor)};
    }
  } else {
    for (int c = at.lane; c < columns; c += 16)
      y[c] = static_cast<unsigned short>(E::Pack(x[c] * factor, 0.0f));
  }
}

// All queries of `count` heads from first_head on, which share the keys of a block.
template <typename Kernel>
__device__ __forceinline__ void WalkHeads(Kernel& kernel, const BackwardParams& of, int kv,
                                          int first_head, int count) {
  auto& gradient = kernel.gradient;
  const Params& p = gradient.params;
  const Mask& seen = gradient.mask;
  const int b = gradient.b;
  // What lies past a length, even NaN, reads as zero.
  const Source k = RowsOfHead(p.k, b * p.k_strides.batch, p.k_strides, kv, seen.keys, p.head);
  const Source v = RowsOfHead(p.v, b * p.v_strides.batch, p.v_strides, kv, seen.keys, p.head_v);
  const auto row = [&](int h) { return (static_cast<int64>(b) * p.heads + h) * p.queries; };
  const auto turn_loads = [&](int h) {
    kernel.q = RowsOfHead(p.q, b * p.q_strides.batch, p.q_strides, h, seen.queries, p.head);
    kernel.dout =
        RowsOfHead(of.dout, b * p.o_strides.batch, p.o_strides, h, seen.queries, p.head_v);
    kernel.stats = of.stats + row(h);
    kernel.delta = of.delta + row(h);
  };
  const auto turn_scores = [&](int h) {
    gradient.AtHead(h, of.adds_dbias ? of.dbias_sum : nullptr);
  };
  const auto turn_sums = [&](int h) {
    kernel.dq = of.adds_dq ? of.dq_sum + row(h) * p.head : nullptr;
  };
  kernel.Walk(k, v, first_head, count, turn_loads, turn_scores, turn_sums);
}

// Kernel is a BackwardKeys<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    sdpa_backward_keys(unsigned short* dk, unsigned short* dv, const __grid_constant__ Params p,
                       const __grid_constant__ BackwardParams of) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const BlockPlace at = Kernel::PlaceOf(p);
  const int b = at.head / p.kv_heads, kv = at.head % p.kv_heads, group = p.heads / p.kv_heads;
  Kernel kernel(p, p.MaskAt(b), b, at.block, shared);
  WalkHeads(kernel, of, kv, kv * group, group);
  kernel.Store(dk + b * p.k_strides.batch + kv * p.k_strides.head,
               dv + b * p.v_strides.batch + kv * p.v_strides.head, p.keys);
}

// Kernel is a BackwardQueries<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    sdpa_backward_queries(unsigned short* dq, const __grid_constant__ Params p,
                          const __grid_constant__ BackwardParams of) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const BlockPlace at = Kernel::PlaceOf(p);
  const int b = at.head / p.heads, h = at.head % p.heads, kv = h / (p.heads / p.kv_heads);
  Kernel kernel(p, p.MaskAt(b), b, h, at.block, shared);
  const Mask& seen = kernel.gradient.mask;
  kernel.q = RowsOfHead(p.q, b * p.q_strides.batch, p.q_strides, h, seen.queries, p.head);
  kernel.dout = RowsOfHead(of.dout, b * p.o_strides.batch, p.o_strides, h, seen.queries, p.head_v);
  kernel.k = RowsOfHead(p.k, b * p.k_strides.batch, p.k_strides, kv, seen.keys, p.head);
  kernel.v = RowsOfHead(p.v, b * p.v_strides.batch, p.v_strides, kv, seen.keys, p.head_v);
  const int64 row = static_cast<int64>(at.head) * p.queries;
  kernel.Differentiate(dq + b * p.q_strides.batch + h * p.q_strides.head, of.stats + row,
                       of.delta + row, p.queries);
}

}  // namespace attention
