// The forward kernel of many tiles of short sequences: short.cuh. The manifest, forward.toml, says
// where it is legal.
#include "short.cuh"

namespace attention {

template <typename T>
__global__ void __launch_bounds__(Short<T>::kThreads, 1)
    short_forward(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                  const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o,
                  const __grid_constant__ ShortCall call) {
  extern __shared__ unsigned char raw[];
  __shared__ typename Short<T>::Memory memory;
  const Short<T> block{call, memory, call.Parts(static_cast<int>(gridDim.x)),
                       (SharedAddress(raw) + 1023u) & ~1023u};
  if (threadIdx.x == 0) {
    block.Begin();
    PrefetchMap(&q);
    PrefetchMap(&k);
    PrefetchMap(&v);
    PrefetchMap(&o);
  }
  __syncthreads();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128, 0);
  if (group < kShortGroups) {
    TakeRegisters<224>();
    block.ComputeAll(&o, group);
  } else {
    GiveRegisters<56>();
    if (threadIdx.x / 32 == Short<T>::kMath / 32) block.LoadAll(&q, &k, &v);
  }
}

}  // namespace attention
