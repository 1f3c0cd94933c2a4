// What an execution plan of ragged attention needs beside it: the lengths of the sequences, and the
// elements at which they begin in each tensor.
#include "ragged.cuh"

namespace attention {

// Lengths per sequence; elements per sequence and, behind the last one, where it ends. A row of q
// has heads * head elements, and so on; of stats it has `heads`.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    ragged_places(int* q_lengths, int* kv_lengths, int* q_at, int* k_at, int* v_at, int* o_at,
                  int* stats_at, const int* q_offsets, const int* kv_offsets, int sequences,
                  int q_total, int kv_total, int q_bound, int kv_bound, int heads, int kv_heads,
                  int head, int head_v) {
  for (int b = threadIdx.x; b <= sequences; b += kThreads) {
    int q_row = max(0, min(q_offsets[b], q_total)), kv_row = max(0, min(kv_offsets[b], kv_total));
    if (b < sequences) {
      q_lengths[b] = RowsOf(q_offsets, b, q_total, q_bound).count;
      kv_lengths[b] = RowsOf(kv_offsets, b, kv_total, kv_bound).count;
    }
    q_at[b] = q_row * heads * head;
    o_at[b] = q_row * heads * head_v;
    stats_at[b] = q_row * heads;
    k_at[b] = kv_row * kv_heads * head;
    v_at[b] = kv_row * kv_heads * head_v;
  }
}

}  // namespace attention
