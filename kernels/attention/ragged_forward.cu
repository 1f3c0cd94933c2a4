// The forward kernel of ragged attention: forward.cuh on the rows of each sequence.
#include "forward.cuh"
#include "ragged_rows.cuh"

namespace attention {

// Kernel is a Forward<..>.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    ragged_forward(unsigned short* o, float* stats, const __grid_constant__ Params p,
                   const __grid_constant__ Sequences all) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const BlockPlace at = Kernel::PlaceOf(p);
  const int b = at.head / p.heads, h = at.head % p.heads, kv = h / (p.heads / p.kv_heads);
  const SequenceRows rows(p, all, b);
  Kernel kernel(p, rows.mask, b, h, at.block, shared);
  if (kernel.first_query >= rows.q.count) return;  // shorter than the bound
  const int64 first_q = rows.q.first, first_kv = rows.kv.first;
  kernel.q = p.q + first_q * p.q_strides.token + h * p.q_strides.head;
  kernel.k = p.k + first_kv * p.k_strides.token + kv * p.k_strides.head;
  kernel.v = p.v + first_kv * p.v_strides.token + kv * p.v_strides.head;
  kernel.Walk();
  if (stats != nullptr) stats += first_q * p.heads + h;
  kernel.Finish(o + first_q * p.o_strides.token + h * p.o_strides.head, rows.q.count, stats,
                p.heads);
}

}  // namespace attention
