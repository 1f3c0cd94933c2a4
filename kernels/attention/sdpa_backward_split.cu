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
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    sdpa_backward_keys_split(float* dk, float* dv, int parts, const __grid_constant__ Params p,
                             const __grid_constant__ BackwardParams of) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const BlockPlace at = Kernel::PlaceOf(p);  // among all parts of all heads
  const int head_of_all = at.head / parts, part = at.head % parts;
  const int b = head_of_all / p.kv_heads, kv = head_of_all % p.kv_heads;
  const int group = p.heads / p.kv_heads;
  const int first_head = part * group / parts, end_head = (part + 1) * group / parts;
  Kernel kernel(p, p.MaskAt(b), b, at.block, shared);
  WalkHeads(kernel, of, kv, kv * group + first_head, end_head - first_head);
  const int blocks = (p.keys + Kernel::kKeys - 1) / Kernel::kKeys;
  const int64 heads_of_part = gridDim.x / blocks / parts;
  const int64 row = (part * heads_of_part + head_of_all) * p.keys;
  StoreSums(kernel, kernel.dk, dk + row * p.head, p.keys, p.head);
  StoreSums(kernel, kernel.dv, dv + row * p.head_v, p.keys, p.head_v);
}

// `rows` of [batch, head, token], 16 lanes each: factor times the sum over the parts, which are
// rows * columns floats apart.
template <typename T>
__global__ void __launch_bounds__(256)
    sdpa_backward_sum_parts(unsigned short* to, const float* from, float factor, int parts,
                            int64 rows, int heads, int tokens, int columns,
                            const __grid_constant__ Strides strides) {
  using E = Element<T>;
  const RowOfHeads at(heads, tokens, strides);
  if (at.row >= rows) return;
  unsigned short* y = to + at.offset;
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
