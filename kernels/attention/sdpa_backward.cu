// Backward kernels of attention. The manifest, attention.toml, says which instances exist and where
// each is legal.
//
//   sdpa_backward_delta     delta = sum over columns of o * dout, a number per query
//   sdpa_backward_keys      dk, dv and, unless deterministic, sums of dq in floats
//   sdpa_backward_queries   dq, when deterministic
//   sdpa_backward_convert   float sums, of dq or of the bias, to elements
//
// delta, stats and the sums of dq are [batch, head, query(, column)]; strides of everything else
// are given in elements, from batch to batch, from token to token, from head to head.
#include "backward_keys.cuh"
#include "backward_queries.cuh"

namespace attention {

__device__ __forceinline__ const unsigned short* Bits(const void* p) {
  return static_cast<const unsigned short*>(p);
}

// Rows of [batch, head, token], 16 lanes each.
struct RowOfHeads {
  int64 row;  // in [batch, head, token]
  int64 offset;
  int lane;

  __device__ __forceinline__ RowOfHeads(int heads, int tokens, int64 batch, int64 token,
                                        int64 head) {
    row = (static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x) / 16;
    lane = threadIdx.x % 16;
    const unsigned all = static_cast<unsigned>(row), of_heads = all / tokens;
    offset = of_heads / heads * batch + of_heads % heads * head + all % tokens * token;
  }
};

// Of two words of two elements each.
template <typename T>
__device__ __forceinline__ float Dot(unsigned x, unsigned y) {
  using E = Element<T>;
  return E::Low(x) * E::Low(y) + E::Low(x >> 16) * E::Low(y >> 16);
}

template <typename T, int kVector>
__global__ void __launch_bounds__(256)
    sdpa_backward_delta(float* delta, const T* o, const T* dout, int64 rows, int heads, int queries,
                        int columns, int64 o_batch, int64 o_token, int64 o_head) {
  using E = Element<T>;
  const RowOfHeads at(heads, queries, o_batch, o_token, o_head);
  float sum = 0.0f;
  if (at.row < rows) {
    const unsigned short* a = Bits(o) + at.offset;
    const unsigned short* b = Bits(dout) + at.offset;
    if constexpr (kVector != 0) {
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

template <typename T, int kVector>
__global__ void __launch_bounds__(256)
    sdpa_backward_convert(T* to, const float* from, float factor, int64 rows, int heads, int tokens,
                          int columns, int64 batch, int64 token, int64 head) {
  using E = Element<T>;
  const RowOfHeads at(heads, tokens, batch, token, head);
  if (at.row >= rows) return;
  const float* x = from + at.row * columns;
  unsigned short* y = reinterpret_cast<unsigned short*>(to) + at.offset;
  if constexpr (kVector != 0) {
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

template <typename T, int kHead, int kHeadV, int kMod, int kExtras, int kVector>
__global__ void __launch_bounds__(256, 1)
    sdpa_backward_keys(T* dk, T* dv, float* dq, bool adds_dq, float* bias_sum, bool bias_gradient,
                       const T* q, const T* k, const T* v, const T* dout, const float* stats,
                       const float* delta, const T* bias, const int* q_lengths,
                       const int* kv_lengths, const unsigned* dropout_state, const float* tensor0,
                       const float* tensor1, const Floats8 scalars, int mod, float scale,
                       float dropout, int mask, int window, int heads, int kv_heads, int queries,
                       int keys, int head, int head_v, int64 q_batch, int64 q_token, int64 q_head,
                       int64 k_batch, int64 k_token, int64 k_head, int64 v_batch, int64 v_token,
                       int64 v_head, int64 o_batch, int64 o_token, int64 o_head, int64 bias_batch,
                       int64 bias_head) {
  using Kernel = BackwardKeys<T, kHead, kHeadV, kMod, kExtras != 0, kVector != 0>;
  constexpr int kKeys = Kernel::kKeys;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int blocks = (keys + kKeys - 1) / kKeys, group = heads / kv_heads;
  const int all_heads = gridDim.x / blocks;
  // Causal: all heads' first keys first, which most queries see.
  const int block = mask != kMaskNone ? blockIdx.x / all_heads : blockIdx.x % blocks;
  const int head_of_all = mask != kMaskNone ? blockIdx.x % all_heads : blockIdx.x / blocks;
  const int b = head_of_all / kv_heads, kv = head_of_all % kv_heads;

  Kernel kernel(shared);
  kernel.first_key = block * kKeys;
  auto& gradient = kernel.gradient;
  gradient.scale = scale;
  gradient.mod = mod;
  gradient.b = b;
  gradient.mask = MaskOf(mask, window, q_lengths, kv_lengths, b, queries, keys);
  gradient.score = ScoreArgsOf(scalars, tensor0, tensor1, heads, queries, keys);
  gradient.dropout = DropoutOf(kExtras ? dropout_state : nullptr, dropout);
  gradient.bias = {nullptr, queries, keys};
  gradient.bias_gradient = nullptr;

  // What lies past a length, even NaN, reads as zero.
  const Source k_rows = {Bits(k) + b * k_batch + kv * k_head, k_token, gradient.mask.keys, head};
  const Source v_rows = {Bits(v) + b * v_batch + kv * v_head, v_token, gradient.mask.keys, head_v};
  const auto turn_loads = [&](int h) {
    const int64 row = (static_cast<int64>(b) * heads + h) * queries;
    kernel.q = {Bits(q) + b * q_batch + h * q_head, q_token, gradient.mask.queries, head};
    kernel.dout = {Bits(dout) + b * o_batch + h * o_head, o_token, gradient.mask.queries, head_v};
    kernel.stats = stats + row;
    kernel.delta = delta + row;
  };
  const auto turn_scores = [&](int h) {
    gradient.h = h;
    gradient.dropout_row = static_cast<unsigned>((b * heads + h) * static_cast<int64>(queries));
    const int64 at = b * bias_batch + h * bias_head;
    if (kExtras && bias != nullptr) gradient.bias.data = Bits(bias) + at;
    if (kExtras && bias_gradient) gradient.bias_gradient = bias_sum + at;
  };
  const auto turn_sums = [&](int h) {
    const int64 row = (static_cast<int64>(b) * heads + h) * queries;
    kernel.dq = adds_dq ? dq + row * head : nullptr;
  };

  kernel.Walk(k_rows, v_rows, kv * group, group, turn_loads, turn_scores, turn_sums);
  unsigned short* to_k = reinterpret_cast<unsigned short*>(dk) + b * k_batch + kv * k_head;
  unsigned short* to_v = reinterpret_cast<unsigned short*>(dv) + b * v_batch + kv * v_head;
  kernel.Store(to_k, k_token, to_v, v_token, keys, head, head_v);
}

template <typename T, int kHead, int kHeadV, int kMod, int kExtras, int kVector>
__global__ void __launch_bounds__(128, (kHead > 128 ? 1 : 2))
    sdpa_backward_queries(T* dq, const T* q, const T* k, const T* v, const T* dout,
                          const float* stats, const float* delta, const T* bias,
                          const int* q_lengths, const int* kv_lengths,
                          const unsigned* dropout_state, const float* tensor0, const float* tensor1,
                          const Floats8 scalars, int mod, float scale, float dropout, int mask,
                          int window, int heads, int kv_heads, int queries, int keys, int head,
                          int head_v, int64 q_batch, int64 q_token, int64 q_head, int64 k_batch,
                          int64 k_token, int64 k_head, int64 v_batch, int64 v_token, int64 v_head,
                          int64 o_batch, int64 o_token, int64 o_head, int64 bias_batch,
                          int64 bias_head) {
  using Kernel = BackwardQueries<T, kHead, kHeadV, kMod, kExtras != 0, kVector != 0>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const unsigned blocks = (queries + Kernel::kQueries - 1) / Kernel::kQueries;
  const unsigned head_of_all = blockIdx.x / blocks;
  const int b = head_of_all / heads, h = head_of_all % heads, kv = h / (heads / kv_heads);

  Kernel kernel;
  kernel.thread = threadIdx.x;
  kernel.warp = threadIdx.x / 32;
  kernel.lane = threadIdx.x % 32;
  kernel.shared = SharedAddress(shared);
  kernel.first_query = blockIdx.x % blocks * Kernel::kQueries;
  auto& gradient = kernel.gradient;
  gradient.scale = scale;
  gradient.mod = mod;
  gradient.b = b;
  gradient.h = h;
  gradient.mask = MaskOf(mask, window, q_lengths, kv_lengths, b, queries, keys);
  gradient.score = ScoreArgsOf(scalars, tensor0, tensor1, heads, queries, keys);
  gradient.dropout = DropoutOf(kExtras ? dropout_state : nullptr, dropout);
  gradient.dropout_row = head_of_all * static_cast<unsigned>(queries);
  gradient.bias = {nullptr, queries, keys};
  if (kExtras && bias != nullptr) gradient.bias.data = Bits(bias) + b * bias_batch + h * bias_head;
  gradient.bias_gradient = nullptr;  // sdpa_backward_keys adds it

  const Mask& seen_by = gradient.mask;
  kernel.q = {Bits(q) + b * q_batch + h * q_head, q_token, seen_by.queries, head};
  kernel.dout = {Bits(dout) + b * o_batch + h * o_head, o_token, seen_by.queries, head_v};
  kernel.k = {Bits(k) + b * k_batch + kv * k_head, k_token, seen_by.keys, head};
  kernel.v = {Bits(v) + b * v_batch + kv * v_head, v_token, seen_by.keys, head_v};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = kernel.Row() + half * 8;
    const int64 at = static_cast<int64>(head_of_all) * queries + row;
    kernel.base[0][half] = gradient.Base(row < queries ? stats[at] : -Infinity());
    kernel.less[0][half] = row < queries ? delta[at] : 0.0f;
  }
  const Range seen = seen_by.KeysOfBlock(kernel.first_query, Kernel::kQueries);
  const int end = (seen.end + Kernel::kKeys - 1) / Kernel::kKeys;
  kernel.Run(seen.begin / Kernel::kKeys, seen.begin < seen.end ? end : 0);
  kernel.Store(reinterpret_cast<unsigned short*>(dq) + b * q_batch + h * q_head, q_token, queries,
               head);
}

}  // namespace attention
