// Kernels of the cross-entropy ops that make one loss of all rows'. Apart from the others: none
// depends on how a row is computed.
#include "reduce.cuh"

namespace loss {

__global__ void __launch_bounds__(512) reduce(const Reduction reduction, int parts) {
  kbundle::device::WaitForEarlierKernels();
  ReduceRows(reduction, Block<512>(blockDim.x), blockIdx.x, parts);
}

__global__ void __launch_bounds__(512) reduce_parts(const Reduction reduction, int parts) {
  kbundle::device::WaitForEarlierKernels();
  ReduceParts(reduction, Block<512>(blockDim.x), parts);
}

}  // namespace loss
