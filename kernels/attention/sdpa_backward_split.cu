// The backward pass where a few blocks of keys serve many query heads, as with one key head: a
// block for each block of keys would leave most of the GPU idle. Here several blocks take the same
// keys, each the queries of a part of the heads that share them; their sums of dk and dv are added
// up in the order of the parts, so that they are the same every time.
//
//   sdpa_backward_keys_split   sums of dk and dv of each part, and sums of dq unless deterministic
//   sdpa_backward_sum_parts    dk or dv
//
// The rest is sdpa_backward.cu's.
#include "sdpa_backward.cu"

namespace attention {

// The sums of a block, as they lie in its registers (BackwardKeys::Stage), to rows of `columns`
// floats.
template <typename Kernel, int kN>
__device__ __forceinline__ void StoreSums(const Kernel& kernel,
                                          const float (&sum)[Kernel::kTilesK][kN][4], float* to,
                                          int keys, int columns) {
#pragma unroll
  for (int m = 0; m < Kernel::kTilesK; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = kernel.first_key + (kernel.warp / 2 * Kernel::kTilesK + m) * 16 +
                      kernel.lane / 4 + half * 8;
      if (key >= keys) continue;
      float* row = to + static_cast<int64>(key) * columns;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const int chunk = (n / 2 * 2 + kernel.warp % 2) * 2 + n % 2;
        const int column = chunk * 8 + (kernel.lane & 3) * 2;
        if (column < columns)
          *reinterpret_cast<float2*>(row + column) = {sum[m][n][half * 2], sum[m][n][half * 2 + 1]};
      }
    }
}

// dk[part, batch, key head, key, column] and dv likewise.
template <typename T, int kHead, int kHeadV>
__global__ void __launch_bounds__(256, 1)
    sdpa_backward_keys_split(float* dk, float* dv, float* dq, bool adds_dq, const T* q, const T* k,
                             const T* v, const T* dout, const float* stats, const float* delta,
                             const int* q_lengths, const int* kv_lengths, float scale, int mask,
                             int window, int parts, int heads, int kv_heads, int queries, int keys,
                             int head, int head_v, int64 q_batch, int64 q_token, int64 q_head,
                             int64 k_batch, int64 k_token, int64 k_head, int64 v_batch,
                             int64 v_token, int64 v_head, int64 o_batch, int64 o_token,
                             int64 o_head) {
  using Kernel = BackwardKeys<T, kHead, kHeadV, 0, false, true>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int blocks = (keys + Kernel::kKeys - 1) / Kernel::kKeys;
  const int all_parts = gridDim.x / blocks;
  // Causal: the first keys first, which most queries see.
  const int block = mask != kMaskNone ? blockIdx.x / all_parts : blockIdx.x % blocks;
  const int part_of_all = mask != kMaskNone ? blockIdx.x % all_parts : blockIdx.x / blocks;
  const int head_of_all = part_of_all / parts, part = part_of_all % parts;
  const int b = head_of_all / kv_heads, kv = head_of_all % kv_heads, group = heads / kv_heads;
  const int first_head = part * group / parts, end_head = (part + 1) * group / parts;

  Kernel kernel(shared);
  kernel.first_key = block * Kernel::kKeys;
  auto& gradient = kernel.gradient;
  gradient.scale = scale;
  gradient.mod = 0;
  gradient.b = b;
  gradient.mask = MaskOf(mask, window, q_lengths, kv_lengths, b, queries, keys);

  const Source k_rows = {Bits(k) + b * k_batch + kv * k_head, k_token, gradient.mask.keys, head};
  const Source v_rows = {Bits(v) + b * v_batch + kv * v_head, v_token, gradient.mask.keys, head_v};
  const auto turn_loads = [&](int h) {
    const int64 row = (static_cast<int64>(b) * heads + h) * queries;
    kernel.q = {Bits(q) + b * q_batch + h * q_head, q_token, gradient.mask.queries, head};
    kernel.dout = {Bits(dout) + b * o_batch + h * o_head, o_token, gradient.mask.queries, head_v};
    kernel.stats = stats + row;
    kernel.delta = delta + row;
  };
  const auto turn_scores = [&](int h) { gradient.h = h; };
  const auto turn_sums = [&](int h) {
    const int64 row = (static_cast<int64>(b) * heads + h) * queries;
    kernel.dq = adds_dq ? dq + row * head : nullptr;
  };
  kernel.Walk(k_rows, v_rows, kv * group + first_head, end_head - first_head, turn_loads,
              turn_scores, turn_sums);
  const int64 heads_of_part = all_parts / parts;
  const int64 row = (part * heads_of_part + head_of_all) * keys;
  StoreSums(kernel, kernel.dk, dk + row * head, keys, head);
  StoreSums(kernel, kernel.dv, dv + row * head_v, keys, head_v);
}

// `rows` of [batch, head, token], 16 lanes each: factor times the sum over the parts, which are
// rows * columns floats apart.
template <typename T>
__global__ void __launch_bounds__(256)
    sdpa_backward_sum_parts(T* to, const float* from, float factor, int parts, int64 rows,
                            int heads, int tokens, int columns, int64 batch, int64 token,
                            int64 head) {
  using E = Element<T>;
  const RowOfHeads at(heads, tokens, batch, token, head);
  if (at.row >= rows) return;
  unsigned short* y = reinterpret_cast<unsigned short*>(to) + at.offset;
  for (int c = at.lane * 8; c < columns; c += 128) {
    float sum[8] = {};
    const float* x = from + at.row * columns + c;
    for (int part = 0; part < parts; ++part, x += rows * columns) {
      const float4 a = *reinterpret_cast<const float4*>(x);
      const float4 b = *reinterpret_cast<const float4*>(x + 4);
      const float eight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += eight[i];
    }
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = E::Pack(sum[2 * i] * factor, sum[2 * i + 1] * factor);
    *reinterpret_cast<uint4*>(y + c) = {words[0], words[1], words[2], words[3]};
  }
}

}  // namespace attention
