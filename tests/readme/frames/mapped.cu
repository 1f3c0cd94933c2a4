// A kernel that is given a tensor map.
#include <cuda_bf16.h>

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

template <typename T>
__global__ void shift(T* y, const __grid_constant__ TensorMap x) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&x) : "memory");
  y[blockIdx.x] = T();
}
