// Kernels of the norm ops. The manifests say which instances exist and where each is legal.
//
// T is float, __half or __nv_bfloat16; VEC elements travel together: 16 bytes, or one element where
// rows are not aligned. A row has at most VEC * N elements for each thread of its team, or any
// number in the *_long kernels. Rows are int64; every grid is clamped by the manifest and walked by
// a loop.
#include "backward_few.cuh"
#include "backward_ring.cuh"
#include "forward_few.cuh"
#include "forward_long.cuh"
#include "forward_packed.cuh"
#include "forward_staged.cuh"

namespace norms {

// A forward pass waits for memory, then for its team, then for memory: other blocks fill the gaps,
// so 1024 threads are to fit a multiprocessor, fewer of them where they would spill. A backward
// pass fetches ahead, and takes the registers that it needs for that.
template <int VEC, int N, typename Team>
inline constexpr int kResident = Team::kLoose&& N > 2                          ? 512
                                 : VEC == 8 && N == 4 && Team::kThreads == 256 ? 768
                                 : VEC == 1 || N <= 4                          ? 1024
                                                                               : 512;

#define FORWARD_KERNEL \
  __global__ void __launch_bounds__(Team::kThreads, kResident<VEC, N, Team> / Team::kThreads)
#define NORM_KERNEL __global__ void __launch_bounds__(Team::kThreads, 1)

template <typename T, bool kLayer, int VEC, int N, typename Team>
FORWARD_KERNEL forward(T* y, float* mu, float* rsigma, T* sum, const T* x, const T* residual,
                       const void* gamma, const void* beta, float epsilon, float center, bool wide,
                       int H, int64 rows) {
  const ForwardCall<T> call{y,    mu,      rsigma, sum,  x, residual, gamma,
                            beta, epsilon, center, wide, H, rows};
  ForwardRows<kLayer, VEC, N>(call, Team(blockDim.x), blockIdx.x, gridDim.x);
}

template <typename T, int VEC, int N, typename Team>
__global__ void __launch_bounds__(Team::kThreads, 1024 / Team::kThreads)
    forward_packed(T* y, float* mu, float* rsigma, const T* x, const void* gamma, const void* beta,
                   float epsilon, int H, int64 rows) {
  const ForwardCall<T> call{y,    mu,      rsigma, nullptr, x, nullptr, gamma,
                            beta, epsilon, 0.0f,   false,   H, rows};
  ForwardPackedRows<VEC, N>(call, Team(blockDim.x), blockIdx.x, gridDim.x);
}

template <typename T, typename Team>
__global__ void __launch_bounds__(Team::kThreads, 1024 / Team::kThreads)
    forward_staged(T* y, float* mu, float* rsigma, T* sum, const T* x, const T* residual,
                   const void* gamma, const void* beta, float epsilon, float center, bool wide,
                   int H, int64 rows, int slot_bytes) {
  extern __shared__ __align__(128) unsigned char slots[];
  __shared__ ByteBarrier full;
  const ForwardCall<T> call{y,    mu,      rsigma, sum,  x, residual, gamma,
                            beta, epsilon, center, wide, H, rows};
  ForwardStagedRows(call, StagedTeam<Team>(blockDim.x, H), slots, slot_bytes, &full, blockIdx.x,
                    gridDim.x);
}

template <typename T, int VEC, int N, typename Team>
NORM_KERNEL forward_few(T* y, float* mu, float* rsigma, T* sum, const T* x, const T* residual,
                        const void* gamma, const void* beta, float epsilon, float center, bool wide,
                        int H, int64 rows) {
  const ForwardCall<T> call{y,    mu,      rsigma, sum,  x, residual, gamma,
                            beta, epsilon, center, wide, H, rows};
  ForwardPiece<VEC, N>(call, Team(blockDim.x), blockIdx.y, blockIdx.x);
}

template <typename T, typename Team>
NORM_KERNEL forward_long(T* y, float* mu, float* rsigma, T* sum, const T* x, const T* residual,
                         const void* gamma, const void* beta, float epsilon, float center,
                         bool wide, int H, int64 rows) {
  const ForwardCall<T> call{y,    mu,      rsigma, sum,  x, residual, gamma,
                            beta, epsilon, center, wide, H, rows};
  ForwardLongRows(call, Team(blockDim.x), blockIdx.x, gridDim.x);
}

template <typename T, bool kLayer, int VEC, int N, typename Team>
NORM_KERNEL backward(T* dx, float* partial, const T* dy, const T* x, const float* mu,
                     const float* rsigma, const void* gamma, const T* dsum, float center, bool wide,
                     int H, int64 rows) {
  const BackwardCall<T> call{dx, partial, dy, x, mu, rsigma, gamma, dsum, center, wide, H, rows};
  BackwardRows<kLayer, VEC, N>(call, Team(blockDim.x), blockIdx.x, gridDim.x);
}

template <typename T, bool kLayer, int VEC, int N>
__global__ void __launch_bounds__(512, 1)
    backward_ring(T* dx, float* partial, const T* dy, const T* x, const float* mu,
                  const float* rsigma, const void* gamma, const T* dsum, float center, bool wide,
                  int H, int64 rows, int stages) {
  extern __shared__ __align__(128) unsigned char slots[];
  __shared__ ByteBarrier full[kMostStages];
  const BackwardCall<T> call{dx, partial, dy, x, mu, rsigma, gamma, dsum, center, wide, H, rows};
  BackwardRing<kLayer, VEC, N>(call, Block<512>(blockDim.x), slots, full, stages, blockIdx.x,
                               gridDim.x);
}

template <typename T, int VEC, int N, typename Team>
NORM_KERNEL backward_few(T* dx, void* dgamma, void* dbeta, const T* dy, const T* x, const float* mu,
                         const float* rsigma, const void* gamma, const T* dsum, float center,
                         bool wide, int H, int64 rows, int tiles, int lanes, int pieces, int each) {
  const BackwardCall<T> call{dx, nullptr, dy, x, mu, rsigma, gamma, dsum, center, wide, H, rows};
  const int block = blockIdx.x, row = (block - tiles) / pieces, piece = (block - tiles) % pieces;
  LetNextKernelStart();
  WaitForEarlierKernels();
  if (block < tiles) {
    SumColumns<VEC, Team>(call, dgamma, dbeta, block, lanes, blockDim.x);
  } else {
    BackwardPiece<VEC, N>(call, Team(blockDim.x), row, piece * each, each);
  }
}

template <typename T, typename Team>
NORM_KERNEL backward_long(T* dx, float* partial, const T* dy, const T* x, const float* mu,
                          const float* rsigma, const void* gamma, const T* dsum, float center,
                          bool wide, int H, int64 rows) {
  const BackwardCall<T> call{dx, partial, dy, x, mu, rsigma, gamma, dsum, center, wide, H, rows};
  BackwardLongRows(call, Team(blockDim.x), blockIdx.x, gridDim.x);
}

template <typename T>
__global__ void __launch_bounds__(256)
    sum_rows(T* dx, float* partial, const T* dy, const T* x, const float* mu, const float* rsigma,
             const void* gamma, const T* dsum, float center, bool wide, int H, int64 rows) {
  const BackwardCall<T> call{dx, partial, dy, x, mu, rsigma, gamma, dsum, center, wide, H, rows};
  SumRows(call, blockIdx.x * 256 + threadIdx.x, blockIdx.y, gridDim.y);
}

template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    sum_parts(void* dgamma, void* dbeta, bool wide, const float* partial, int columns, int parts,
              int H) {
  SumParts<T>(blockIdx.y == 0 ? dgamma : dbeta, wide, partial + int64{blockIdx.y} * parts * H,
              blockIdx.x, columns, parts, H);
}

}  // namespace norms
