// The kernel of the guide's manifests.
#include <cuda_bf16.h>

template <typename T, int VEC>
__global__ void scale(T* y, const T* x, float factor, long long count) {
  struct alignas(sizeof(T) * VEC) Vector {
    T of[VEC];
  };
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count / VEC;
       i += step) {
    Vector v = reinterpret_cast<const Vector*>(x)[i];
#pragma unroll
    for (int j = 0; j < VEC; ++j) v.of[j] = T(float(v.of[j]) * factor);
    reinterpret_cast<Vector*>(y)[i] = v;
  }
}
