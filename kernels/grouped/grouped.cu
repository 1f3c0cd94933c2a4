// Kernels of the grouped ops for every GPU: products by tiles, by the instructions of sm_80, behind
// places.cu. Nothing in a size leads out of a tensor: groups.cuh.
#include "kbundle/device_order.h"
#include "product.cuh"

namespace grouped {

template <typename T, typename O, bool kTrans, bool kVector>
__global__ void __launch_bounds__(kThreads, kVector ? 2 : 1)
    multiply(O* y, const T* x, const T* w, const O* bias, const int* offsets, const int* tiles,
             int G, int M, int N, int K) {
  __shared__ typename Tile<T>::Memory memory;
  kbundle::device::WaitForEarlierKernels();
  MultiplyGroups<T, O, kTrans, kVector>(memory, y, x, w, bias, offsets, tiles, G, M, N, K);
}

template <typename T, typename O, bool kVector>
__global__ void __launch_bounds__(kThreads, kVector ? 2 : 1)
    weight_gradient(O* dw, const T* x, const T* dy, const int* offsets, int N, int K) {
  __shared__ typename Tile<T>::Memory memory;
  kbundle::device::WaitForEarlierKernels();
  SumGroups<T, O, kVector>(memory, dw, x, dy, offsets, N, K);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_rows(T* dbias, const T* dy, const int* offsets, int N) {
  kbundle::device::WaitForEarlierKernels();
  SumRows<T>(dbias, dy, offsets, N);
}

}  // namespace grouped
