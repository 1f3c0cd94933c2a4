// The backward kernels of ragged attention: backward_keys.cuh and backward_queries.cuh on the rows
// of each sequence. delta, stats and the sums of dq are by head here: [head, row(, column)].
#include "ragged.cuh"
#include "sdpa_backward.cu"

namespace attention {

// stats by head, from stats by row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    ragged_stats_by_head(float* to, const float* stats, int64 count, int heads, int64 rows) {
  const int64 i = static_cast<int64>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[i % heads * rows + i / heads] = stats[i];
}

template <typename T, int kHead, int kHeadV, int kPlain, int kVector>
__global__ void __launch_bounds__(256, 1)
    ragged_backward_keys(T* dk, T* dv, float* dq, bool adds_dq, const T* q, const T* k, const T* v,
                         const T* dout, const float* stats, const float* delta,
                         const int* q_offsets, const int* kv_offsets, const int* q_lengths,
                         const int* kv_lengths, const float* tensor0, const float* tensor1,
                         const Floats8 scalars, int mod, float scale, int mask, int window,
                         int heads, int kv_heads, int q_total, int kv_total, int queries, int keys,
                         int head, int head_v) {
  using Kernel = BackwardKeys<T, kHead, kHeadV, kPlain != 0 ? 0 : kAnyMod, false, kVector != 0>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int blocks = (keys + Kernel::kKeys - 1) / Kernel::kKeys, group = heads / kv_heads;
  const int all_heads = gridDim.x / blocks;
  const int block = mask != kMaskNone ? blockIdx.x / all_heads : blockIdx.x % blocks;
  const int head_of_all = mask != kMaskNone ? blockIdx.x % all_heads : blockIdx.x / blocks;
  const int b = head_of_all / kv_heads, kv = head_of_all % kv_heads;
  const Rows q_rows = RowsOf(q_offsets, q_lengths, b, q_total, queries);
  const Rows kv_rows = RowsOf(kv_offsets, kv_lengths, b, kv_total, keys);
  const int64 first_q = q_rows.first, first_kv = kv_rows.first;
  const int64 q_token = static_cast<int64>(heads) * head,
              o_token = static_cast<int64>(heads) * head_v;
  const int64 k_token = static_cast<int64>(kv_heads) * head;
  const int64 v_token = static_cast<int64>(kv_heads) * head_v;

  Kernel kernel(shared);
  kernel.first_key = block * Kernel::kKeys;
  if (kernel.first_key >= kv_rows.count) return;
  auto& gradient = kernel.gradient;
  gradient.scale = scale;
  gradient.mod = mod;
  gradient.b = b;
  gradient.mask = MaskOf(mask, window, nullptr, nullptr, 0, q_rows.count, kv_rows.count);
  gradient.score = ScoreArgsOf(scalars, tensor0, tensor1, heads, queries, keys);

  const int64 k_at = first_kv * k_token + static_cast<int64>(kv) * head;
  const int64 v_at = first_kv * v_token + static_cast<int64>(kv) * head_v;
  const Source k_source = {Bits(k) + k_at, k_token, kv_rows.count, head};
  const Source v_source = {Bits(v) + v_at, v_token, kv_rows.count, head_v};
  const auto turn_loads = [&](int h) {
    const int64 row = static_cast<int64>(h) * q_total + first_q;
    kernel.q = {Bits(q) + first_q * q_token + static_cast<int64>(h) * head, q_token, q_rows.count,
                head};
    kernel.dout = {Bits(dout) + first_q * o_token + static_cast<int64>(h) * head_v, o_token,
                   q_rows.count, head_v};
    kernel.stats = stats + row;
    kernel.delta = delta + row;
  };
  const auto turn_scores = [&](int h) { gradient.h = h; };
  const auto turn_sums = [&](int h) {
    kernel.dq = adds_dq ? dq + (static_cast<int64>(h) * q_total + first_q) * head : nullptr;
  };
  kernel.Walk(k_source, v_source, kv * group, group, turn_loads, turn_scores, turn_sums);
  kernel.Store(reinterpret_cast<unsigned short*>(dk) + k_at, k_token,
               reinterpret_cast<unsigned short*>(dv) + v_at, v_token, kv_rows.count, head, head_v);
}

template <typename T, int kHead, int kHeadV, int kPlain, int kVector>
__global__ void __launch_bounds__(128, (kHead > 128 ? 1 : 2))
    ragged_backward_queries(T* dq, const T* q, const T* k, const T* v, const T* dout,
                            const float* stats, const float* delta, const int* q_offsets,
                            const int* kv_offsets, const int* q_lengths, const int* kv_lengths,
                            const float* tensor0, const float* tensor1, const Floats8 scalars,
                            int mod, float scale, int mask, int window, int heads, int kv_heads,
                            int q_total, int kv_total, int queries, int keys, int head,
                            int head_v) {
  using Kernel = BackwardQueries<T, kHead, kHeadV, kPlain != 0 ? 0 : kAnyMod, false, kVector != 0>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const unsigned blocks = (queries + Kernel::kQueries - 1) / Kernel::kQueries;
  const unsigned head_of_all = blockIdx.x / blocks;
  const int b = head_of_all / heads, h = head_of_all % heads, kv = h / (heads / kv_heads);
  const Rows q_rows = RowsOf(q_offsets, q_lengths, b, q_total, queries);
  const Rows kv_rows = RowsOf(kv_offsets, kv_lengths, b, kv_total, keys);
  const int64 first_q = q_rows.first, first_kv = kv_rows.first;
  const int64 q_token = static_cast<int64>(heads) * head,
              o_token = static_cast<int64>(heads) * head_v;
  const int64 k_token = static_cast<int64>(kv_heads) * head;
  const int64 v_token = static_cast<int64>(kv_heads) * head_v;

  Kernel kernel;
  kernel.thread = threadIdx.x;
  kernel.warp = threadIdx.x / 32;
  kernel.lane = threadIdx.x % 32;
  kernel.shared = SharedAddress(shared);
  kernel.first_query = blockIdx.x % blocks * Kernel::kQueries;
  if (kernel.first_query >= q_rows.count) return;
  auto& gradient = kernel.gradient;
  gradient.scale = scale;
  gradient.mod = mod;
  gradient.b = b;
  gradient.h = h;
  gradient.mask = MaskOf(mask, window, nullptr, nullptr, 0, q_rows.count, kv_rows.count);
  gradient.score = ScoreArgsOf(scalars, tensor0, tensor1, heads, queries, keys);

  const int64 q_at = first_q * q_token + static_cast<int64>(h) * head;
  kernel.q = {Bits(q) + q_at, q_token, q_rows.count, head};
  kernel.dout = {Bits(dout) + first_q * o_token + static_cast<int64>(h) * head_v, o_token,
                 q_rows.count, head_v};
  kernel.k = {Bits(k) + first_kv * k_token + static_cast<int64>(kv) * head, k_token, kv_rows.count,
              head};
  kernel.v = {Bits(v) + first_kv * v_token + static_cast<int64>(kv) * head_v, v_token,
              kv_rows.count, head_v};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = kernel.Row() + half * 8;
    const int64 at = static_cast<int64>(h) * q_total + first_q + row;
    kernel.base[0][half] = gradient.Base(row < q_rows.count ? stats[at] : -Infinity());
    kernel.less[0][half] = row < q_rows.count ? delta[at] : 0.0f;
  }
  const Range seen = gradient.mask.KeysOfBlock(kernel.first_query, Kernel::kQueries);
  const int end = (seen.end + Kernel::kKeys - 1) / Kernel::kKeys;
  kernel.Run(seen.begin / Kernel::kKeys, seen.begin < seen.end ? end : 0);
  kernel.Store(reinterpret_cast<unsigned short*>(dq) + q_at, q_token, q_rows.count, head);
}

}  // namespace attention
