// What an execution plan of ragged attention needs beside it: the lengths of the sequences, and the
// elements at which they begin in each tensor. Sequences with rows between them have no plan.
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
      q_lengths[b] = RowsOf(q_offsets, nullptr, b, q_total, q_bound).count;
      kv_lengths[b] = RowsOf(kv_offsets, nullptr, b, kv_total, kv_bound).count;
    }
    q_at[b] = q_row * heads * head;
    o_at[b] = q_row * heads * head_v;
    stats_at[b] = q_row * heads;
    k_at[b] = kv_row * kv_heads * head;
    v_at[b] = kv_row * kv_heads * head_v;
  }
}

// Of rows of sequences without keys, where cuDNN writes NaN: o is 0, stats (null unless wanted)
// -inf. A block takes kRows rows of a sequence, q_bound at most: whose row it is needs no search.
template <typename T, int kRows>
__global__ void __launch_bounds__(256)
    ragged_clear_keyless(T* o, float* stats, const int* q_offsets, const int* kv_offsets,
                         int q_total, int kv_total, int q_bound, int kv_bound, int heads,
                         int columns) {
  const int blocks = (q_bound + kRows - 1) / kRows;
  const int sequence = blockIdx.x / blocks, first = blockIdx.x % blocks * kRows;
  if (RowsOf(kv_offsets, nullptr, sequence, kv_total, kv_bound).count != 0) return;
  const Rows rows = RowsOf(q_offsets, nullptr, sequence, q_total, q_bound);
  const int end = min(first + kRows, rows.count), lane = threadIdx.x % 32;
  for (int i = first + threadIdx.x / 32; i < end; i += 8) {
    const int row = rows.first + i;
    ClearRow(o, row, heads * columns, lane);
    for (int h = lane; stats != nullptr && h < heads; h += 32)
      stats[static_cast<int64>(row) * heads + h] = -Infinity();
  }
}

}  // namespace attention
