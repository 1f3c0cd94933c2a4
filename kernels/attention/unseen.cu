// What cuDNN leaves undefined beside its execution plans: rows of o and stats that see no key.
//
// With lengths, cuDNN 9.19 writes NaN where a sequence has no keys at all, and nothing where the
// only query is past its length. Its backward cannot use the -inf of such rows. What lies past a
// length it clears by itself.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace attention {

// A warp for each query of each batch. o[batches, queries, heads, depth], or heads before queries;
// stats[batches, heads, queries] or null. mask: 0 none, 1 causal, 2 causal_bottom_right; window: -1
// none. A length outside its bound counts as the nearest inside.
template <typename T>
__global__ void __launch_bounds__(256)
    clear_unseen(T* o, float* stats, const int* q_lengths, const int* kv_lengths, int batches,
                 int queries, int keys, int heads, int depth, bool heads_first, int mask,
                 int window) {
  const long row = static_cast<long>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (row >= static_cast<long>(batches) * queries) return;
  const int b = static_cast<int>(row / queries), q = static_cast<int>(row % queries);
  const int q_length = min(max(q_lengths[b], 0), queries);
  const int kv_length = min(max(kv_lengths[b], 0), keys);
  const int diagonal = mask == 2 ? q + kv_length - q_length : q;
  const int last = mask == 0 ? kv_length - 1 : min(diagonal, kv_length - 1);
  const int first = window < 0 ? 0 : max(diagonal - window, 0);
  if (q < q_length ? first <= last : kv_length > 0 && queries > 1) return;
  const int lane = threadIdx.x % 32;
  for (int h = 0; h < heads; ++h) {
    const long by_head = (static_cast<long>(b) * heads + h) * queries + q;
    T* out = o + (heads_first ? by_head : row * heads + h) * depth;
    for (int d = lane; d < depth; d += 32) out[d] = T(0.0f);
    if (stats != nullptr && lane == 0) stats[by_head] = -__int_as_float(0x7f800000);
  }
}

// A warp for each key of each batch, for batches without keys: dk[batches, keys, heads, depth] and
// dv with depth_v (0: there is none), or heads before keys, which in a whole batch is the same.
template <typename T>
__global__ void __launch_bounds__(256)
    clear_keyless(T* dk, T* dv, const int* kv_lengths, int batches, int keys, int heads, int depth,
                  int depth_v) {
  const long row = static_cast<long>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (row >= static_cast<long>(batches) * keys || kv_lengths[row / keys] > 0) return;
  const int lane = threadIdx.x % 32;
  for (int i = lane; i < heads * depth; i += 32) dk[row * heads * depth + i] = T(0.0f);
  for (int i = lane; i < heads * depth_v; i += 32) dv[row * heads * depth_v + i] = T(0.0f);
}

}  // namespace attention
