// The forward kernel of attention. The manifest, attention.toml, says which instances exist and
// where each is legal.
#include "forward.cuh"

namespace attention {

// Kernel is a Forward<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    sdpa_forward(unsigned short* o, float* stats, const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const BlockPlace at = Kernel::PlaceOf(p);
  const int b = at.head / p.heads, h = at.head % p.heads, kv = h / (p.heads / p.kv_heads);
  Kernel kernel(p, p.MaskAt(b), b, h, at.block, shared);
  kernel.q = p.q + b * p.q_strides.batch + h * p.q_strides.head;
  kernel.k = p.k + b * p.k_strides.batch + kv * p.k_strides.head;
  kernel.v = p.v + b * p.v_strides.batch + kv * p.v_strides.head;
  kernel.Walk();
  if (stats != nullptr) stats += (static_cast<int64>(b) * p.heads + h) * p.queries;
  kernel.Finish(o + b * p.o_strides.batch + h * p.o_strides.head, p.queries, stats, 1);
}

}  // namespace attention
