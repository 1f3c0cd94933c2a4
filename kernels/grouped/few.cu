// The kernel of grouped products where groups have few rows, for every GPU.
#include "few.cuh"

namespace grouped {

template <typename T, typename O, bool kTrans, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 16 / kWarps)
    multiply_few(O* y, const T* x, const T* w, const O* bias, const int* sizes, int G, int M, int N,
                 int K) {
  __shared__ FewMemory<kWarps> memory;
  MultiplyFew<T, O, kTrans, kWarps>(memory, y, x, w, bias, sizes, G, M, N, K);
}

}  // namespace grouped
