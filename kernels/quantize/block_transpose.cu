// Kernels of the quantize ops with a scale for each block that make codes both ways. The manifest,
// block_transpose.toml, says which instances exist and where each is legal.
#include "block_transpose.cuh"

namespace quantize {

template <typename T, int VEC, int PLANES, bool SUMS>
__global__ void __launch_bounds__(kThreads,
                                  (TilesAtOnce<Element<T>::kBytes * PLANES*(VEC == 1 ? 2 : 1)>()))
    block_activation_gradient(unsigned char* q, float* scale_inv, unsigned char* q_t,
                              float* scale_inv_t, float* partial, const T* dy, const T* x, int64 M,
                              int64 N, unsigned across, int function, float limit, float alpha,
                              float offset, bool tiles, bool tiles_t, float epsilon,
                              bool power_of_two, bool e5m2) {
  extern __shared__ uint4 parked[];
  const BlockResults to{
      {q, scale_inv, tiles}, {q_t, scale_inv_t, tiles_t}, partial, {epsilon, power_of_two}};
  constexpr int kVec = kTaken<T, VEC>;
  const Activation how{function, limit, alpha, offset};
  const Differentiating<T, kVec, PLANES, VEC == 1> source(dy, x, M, N, how);
  BlockActivationGradient<T, kVec, PLANES, SUMS>(to, source, M, across, e5m2, parked);
}

}  // namespace quantize
