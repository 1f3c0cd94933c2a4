// Forward kernels of attention. The manifest, attention.toml, says which instances exist and where
// each is legal.
#include "forward.cuh"

namespace attention {

// Strides are in elements: from batch to batch, from token to token, from head to head.
template <typename T, int kHead, int kHeadV, int kMod, int kExtras, int kVector>
__global__ void __launch_bounds__(
    (Forward<T, kHead, kHeadV, kMod, kExtras != 0, kVector != 0>::kThreads), (kHeadV > 128 ? 1 : 2))
    sdpa_forward(T* o, float* stats, const T* q, const T* k, const T* v, const T* bias,
                 const int* q_lengths, const int* kv_lengths, const unsigned* dropout_state,
                 const float* tensor0, const float* tensor1, const Floats8 scalars, int mod,
                 float scale, float dropout, int mask, int window, int heads, int kv_heads,
                 int queries, int keys, int head, int head_v, int64 q_batch, int64 q_token,
                 int64 q_head, int64 k_batch, int64 k_token, int64 k_head, int64 v_batch,
                 int64 v_token, int64 v_head, int64 o_batch, int64 o_token, int64 o_head,
                 int64 bias_batch, int64 bias_head) {
  using Kernel = Forward<T, kHead, kHeadV, kMod, kExtras != 0, kVector != 0>;
  extern __shared__ __align__(1024) unsigned char shared[];
  // Causal: all heads' longest blocks first, so that the last wave is of short ones. Otherwise a
  // head's blocks together, so that its keys are read from memory once.
  const unsigned blocks = (queries + Kernel::kQueries - 1) / Kernel::kQueries;
  const unsigned all_heads = gridDim.x / blocks;
  const bool longest_first = mask != kMaskNone;
  const unsigned block = longest_first ? blocks - 1 - blockIdx.x / all_heads : blockIdx.x % blocks;
  const unsigned head_of_all = longest_first ? blockIdx.x % all_heads : blockIdx.x / blocks;
  const int b = head_of_all / heads, h = head_of_all % heads, kv = h / (heads / kv_heads);
  const auto bits = [](const T* p) { return reinterpret_cast<const unsigned short*>(p); };

  Kernel kernel(shared);
  kernel.b = b;
  kernel.h = h;
  kernel.first_query = block * Kernel::kQueries;
  kernel.scale = scale;
  kernel.mod = mod;
  kernel.mask = MaskOf(mask, window, q_lengths, kv_lengths, b, queries, keys);
  // Keys past a length read as zero, so that what lies there, even NaN, is multiplied by nothing.
  kernel.q = {bits(q) + b * q_batch + h * q_head, q_token, queries, head};
  kernel.k = {bits(k) + b * k_batch + kv * k_head, k_token, kernel.mask.keys, head};
  kernel.v = {bits(v) + b * v_batch + kv * v_head, v_token, kernel.mask.keys, head_v};
  kernel.score = ScoreArgsOf(scalars, tensor0, tensor1, heads, queries, keys);
  kernel.bias = {nullptr, queries, keys};
  if (bias != nullptr) kernel.bias.data = bits(bias) + b * bias_batch + h * bias_head;
  kernel.dropout = DropoutOf(kExtras ? dropout_state : nullptr, dropout);
  kernel.dropout_row = head_of_all * static_cast<unsigned>(queries);

  unsigned short* out = reinterpret_cast<unsigned short*>(o) + b * o_batch + h * o_head;
  kernel.Attend(out, o_token, queries, head_v,
                stats == nullptr ? nullptr : stats + static_cast<int64>(head_of_all) * queries, 1);
}

}  // namespace attention
