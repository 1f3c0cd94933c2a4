// The forward kernel of ragged attention: forward.cuh on the rows of each sequence. kPlain: there
// is no score modifier.
#include "forward.cuh"
#include "ragged.cuh"

namespace attention {

template <typename T, int kHead, int kHeadV, int kPlain, int kVector>
__global__ void __launch_bounds__((Forward < T, kHead, kHeadV, kPlain != 0 ? 0 : kAnyMod, false,
                                   kVector != 0 > ::kThreads),
                                  (kHeadV > 128 ? 1 : 2))
    ragged_forward(T* o, float* stats, const T* q, const T* k, const T* v, const int* q_offsets,
                   const int* kv_offsets, const int* q_lengths, const int* kv_lengths,
                   const float* tensor0, const float* tensor1, const Floats8 scalars, int mod,
                   float scale, int mask, int window, int heads, int kv_heads, int q_total,
                   int kv_total, int queries, int keys, int head, int head_v) {
  using Kernel = Forward<T, kHead, kHeadV, kPlain != 0 ? 0 : kAnyMod, false, kVector != 0>;
  extern __shared__ __align__(1024) unsigned char shared[];
  // As in sdpa_forward; sequences shorter than the bound leave blocks without work.
  const unsigned blocks = (queries + Kernel::kQueries - 1) / Kernel::kQueries;
  const unsigned all_heads = gridDim.x / blocks;
  const bool longest_first = mask != kMaskNone;
  const unsigned block = longest_first ? blocks - 1 - blockIdx.x / all_heads : blockIdx.x % blocks;
  const unsigned head_of_all = longest_first ? blockIdx.x % all_heads : blockIdx.x / blocks;
  const int b = head_of_all / heads, h = head_of_all % heads, kv = h / (heads / kv_heads);
  const Rows q_rows = RowsOf(q_offsets, q_lengths, b, q_total, queries);
  const Rows kv_rows = RowsOf(kv_offsets, kv_lengths, b, kv_total, keys);

  Kernel kernel(shared);
  kernel.first_query = block * Kernel::kQueries;
  if (kernel.first_query >= q_rows.count) return;
  kernel.b = b;
  kernel.h = h;
  kernel.scale = scale;
  kernel.mod = mod;
  kernel.mask = MaskOf(mask, window, nullptr, nullptr, 0, q_rows.count, kv_rows.count);
  const int64 first_q = q_rows.first, first_kv = kv_rows.first;
  const auto rows = [](const T* p, int64 first, int heads, int h, int columns) {
    return reinterpret_cast<const unsigned short*>(p) + (first * heads + h) * columns;
  };
  kernel.q = {rows(q, first_q, heads, h, head), static_cast<int64>(heads) * head, q_rows.count,
              head};
  kernel.k = {rows(k, first_kv, kv_heads, kv, head), static_cast<int64>(kv_heads) * head,
              kv_rows.count, head};
  kernel.v = {rows(v, first_kv, kv_heads, kv, head_v), static_cast<int64>(kv_heads) * head_v,
              kv_rows.count, head_v};
  kernel.score = ScoreArgsOf(scalars, tensor0, tensor1, heads, queries, keys);
  unsigned short* out =
      reinterpret_cast<unsigned short*>(o) + (first_q * heads + h) * static_cast<int64>(head_v);
  kernel.Attend(out, static_cast<int64>(heads) * head_v, q_rows.count, head_v,
                stats == nullptr ? nullptr : stats + first_q * heads + h, heads);
}

}  // namespace attention
