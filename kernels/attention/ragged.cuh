// Ragged attention: sequences lie one after another in one tensor, and where each begins is read on
// the device. Nothing outside the tensors is touched, whatever the offsets and lengths say.
#pragma once

#include "mask.cuh"
#include "ptx.cuh"

namespace attention {

// Rows of a tensor that belong to one sequence.
struct Rows {
  int first, count;
};

// Inside the tensor of `total` rows, and no more than the `bound` of one sequence. With lengths
// (null: none) rows may be left between a sequence and the next.
__device__ __forceinline__ Rows RowsOf(const int* offsets, const int* lengths, int sequence,
                                       int total, int bound) {
  const int first = max(0, min(offsets[sequence], total));
  const int end = max(first, min(offsets[sequence + 1], total));
  const int most = min(end - first, bound);
  return {first, lengths == nullptr ? most : max(0, min(lengths[sequence], most))};
}

// Whether some sequence has this row.
__device__ __forceinline__ bool IsOwned(const int* offsets, const int* lengths, int sequences,
                                        int total, int bound, int row) {
  int before = -1, after = sequences;  // offsets[before] <= row < offsets[after]
  while (after - before > 1) {
    const int middle = (before + after) / 2;
    (offsets[middle] <= row ? before : after) = middle;
  }
  if (before < 0) return false;
  const Rows rows = RowsOf(offsets, lengths, before, total, bound);
  return row >= rows.first && row - rows.first < rows.count;
}

// By one warp, a row of elements.
template <typename T>
__device__ __forceinline__ void ClearRow(T* tensor, int row, int columns, int lane) {
  unsigned short* to =
      reinterpret_cast<unsigned short*>(tensor) + static_cast<int64>(row) * columns;
  if ((reinterpret_cast<unsigned long long>(to) | columns * 2) % 16 != 0) {
    for (int i = lane; i < columns; i += 32) to[i] = 0;
    return;
  }
  for (int i = lane; i < columns / 8; i += 32) reinterpret_cast<uint4*>(to)[i] = uint4{0, 0, 0, 0};
}

// Of rows that no sequence has: o is 0, stats (null unless wanted) -inf. A warp takes a row.
template <typename T>
__global__ void __launch_bounds__(256)
    ragged_clear_forward(T* o, float* stats, const int* q_offsets, const int* q_lengths,
                         int sequences, int total, int bound, int heads, int columns) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= total || IsOwned(q_offsets, q_lengths, sequences, total, bound, row)) return;
  ClearRow(o, row, heads * columns, lane);
  for (int h = lane; stats != nullptr && h < heads; h += 32)
    stats[static_cast<int64>(row) * heads + h] = -Infinity();
}

// Of rows that no sequence has: gradients of 0.
template <typename T>
__global__ void __launch_bounds__(256)
    ragged_clear_backward(T* dq, T* dk, T* dv, const int* q_offsets, const int* kv_offsets,
                          const int* q_lengths, const int* kv_lengths, int sequences, int q_total,
                          int kv_total, int q_bound, int kv_bound, int heads, int kv_heads,
                          int head, int head_v) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row < q_total && !IsOwned(q_offsets, q_lengths, sequences, q_total, q_bound, row))
    ClearRow(dq, row, heads * head, lane);
  if (row < kv_total && !IsOwned(kv_offsets, kv_lengths, sequences, kv_total, kv_bound, row)) {
    ClearRow(dk, row, kv_heads * head, lane);
    ClearRow(dv, row, kv_heads * head_v, lane);
  }
}

}  // namespace attention
