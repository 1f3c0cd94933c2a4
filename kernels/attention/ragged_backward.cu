// The backward kernels of ragged attention: backward_keys.cuh and backward_queries.cuh on the rows
// of each sequence. delta, stats and the sums of dq are by head here: [head, row(, column)].
#include "ragged_rows.cuh"
#include "sdpa_backward.cu"

namespace attention {

// stats by head, from stats by row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    ragged_stats_by_head(float* to, const float* stats, int64 count, int heads, int64 rows) {
  const int64 i = static_cast<int64>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[i % heads * rows + i / heads] = stats[i];
}

// Kernel is a BackwardKeys<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    ragged_backward_keys(unsigned short* dk, unsigned short* dv, const __grid_constant__ Params p,
                         const __grid_constant__ BackwardParams of,
                         const __grid_constant__ Sequences all) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const BlockPlace at = Kernel::PlaceOf(p);
  const int b = at.head / p.kv_heads, kv = at.head % p.kv_heads, group = p.heads / p.kv_heads;
  const SequenceRows rows(p, all, b);
  Kernel kernel(p, rows.mask, b, at.block, shared);
  if (kernel.first_key >= rows.kv.count) return;
  const auto row = [&](int h) { return static_cast<int64>(h) * all.q_total + rows.q.first; };
  const auto turn_loads = [&](int h) {
    kernel.q = rows.Queries(p.q, p.q_strides, h, p.head);
    kernel.dout = rows.Queries(of.dout, p.o_strides, h, p.head_v);
    kernel.stats = of.stats + row(h);
    kernel.delta = of.delta + row(h);
  };
  const auto turn_scores = [&](int h) {
    kernel.gradient.AtHead(h, of.adds_dbias ? of.dbias_sum : nullptr);
  };
  const auto turn_sums = [&](int h) {
    kernel.dq = of.adds_dq ? of.dq_sum + row(h) * p.head : nullptr;
  };
  kernel.Walk(rows.Keys(p.k, p.k_strides, kv, p.head), rows.Keys(p.v, p.v_strides, kv, p.head_v),
              kv * group, group, turn_loads, turn_scores, turn_sums);
  const int64 first = rows.kv.first;
  kernel.Store(dk + first * p.k_strides.token + kv * p.k_strides.head,
               dv + first * p.v_strides.token + kv * p.v_strides.head, rows.kv.count);
}

// Kernel is a BackwardQueries<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    ragged_backward_queries(unsigned short* dq, const __grid_constant__ Params p,
                            const __grid_constant__ BackwardParams of,
                            const __grid_constant__ Sequences all) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const BlockPlace at = Kernel::PlaceOf(p);
  const int b = at.head / p.heads, h = at.head % p.heads, kv = h / (p.heads / p.kv_heads);
  const SequenceRows rows(p, all, b);
  Kernel kernel(p, rows.mask, b, h, at.block, shared);
  if (kernel.first_query >= rows.q.count) return;
  kernel.q = rows.Queries(p.q, p.q_strides, h, p.head);
  kernel.dout = rows.Queries(of.dout, p.o_strides, h, p.head_v);
  kernel.k = rows.Keys(p.k, p.k_strides, kv, p.head);
  kernel.v = rows.Keys(p.v, p.v_strides, kv, p.head_v);
  const int64 first = rows.q.first, row = static_cast<int64>(h) * all.q_total + first;
  kernel.Differentiate(dq + first * p.q_strides.token + h * p.q_strides.head, of.stats + row,
                       of.delta + row, rows.q.count);
}

}  // namespace attention
