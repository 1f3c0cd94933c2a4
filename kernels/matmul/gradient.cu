// The gradient of an activation behind a product, and the sum of its rows; sums of a factor's rows.
//
// cuBLASLt has both as an epilogue, which costs a third of a product's time; a pass over d costs
// what the memory takes for it. So the product is left in d, rounded, and these kernels follow: one
// multiplies d in place and sums up columns of 128 rows, the other adds those sums. Each sum has
// one order.
#include "ptx.cuh"

namespace matmul {

inline constexpr int kPartRows = 128, kPartColumns = 256, kGradientWarps = 8;
inline constexpr int kTogether = 4;  // rows whose loads a lane has under way

// Eight neighbouring elements, in words as they lie in memory.
template <typename O>
struct Eight {
  using E = Element<O>;
  using Bits = typename E::Bits;
  static constexpr int kWords = sizeof(Bits) / 2, kEach = 16 / sizeof(Bits);
  union {
    uint4 words[kWords];
    Bits elements[8];
  };

  __device__ __forceinline__ void Load(const O* from, int64 at) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      words[i] = LoadOnce16(reinterpret_cast<const Bits*>(from) + at + kEach * i);
    }
  }
  __device__ __forceinline__ void Store(O* to, int64 at) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      Store16(reinterpret_cast<Bits*>(to) + at + kEach * i, words[i]);
    }
  }
  __device__ __forceinline__ float Get(int i) const { return E::FromBits(elements[i]); }
  __device__ __forceinline__ void Set(int i, float x) { elements[i] = E::ToBits(x); }
};

// What the activation remembers of 8 columns of a row: the input of a gelu, or bits of a relu.
template <typename O, bool GELU>
struct Remembered {
  Eight<O> inputs;

  __device__ __forceinline__ void Load(const O* aux, const unsigned char*, int64 row, int column,
                                       int columns) {
    inputs.Load(aux, row * columns + column);
  }
  __device__ __forceinline__ float Apply(float x, int i) const {
    return x * GeluSlope(inputs.Get(i));
  }
};

template <typename O>
struct Remembered<O, false> {
  unsigned bits;

  __device__ __forceinline__ void Load(const O*, const unsigned char* mask, int64 row, int column,
                                       int columns) {
    bits = mask[row * ((columns + 127) / 128 * 16) + column / 8];
  }
  __device__ __forceinline__ float Apply(float x, int i) const {
    return (bits >> i & 1) != 0 ? x : 0;
  }
};

// Adds up what the warps of a block have of its 256 columns, in their order.
__device__ __forceinline__ void StorePart(float (&of_warp)[kGradientWarps][kPartColumns],
                                          const float (&sum)[8], float* partial, int N) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < 8; ++i) of_warp[warp][8 * lane + i] = sum[i];
  __syncthreads();
  float total = of_warp[0][threadIdx.x];
#pragma unroll
  for (int i = 1; i < kGradientWarps; ++i) total += of_warp[i][threadIdx.x];
  const int n = static_cast<int>(blockIdx.x) * kPartColumns + static_cast<int>(threadIdx.x);
  if (n < N) partial[(int64{blockIdx.z} * gridDim.y + blockIdx.y) * N + n] = total;
}

// Grid: 256 columns in x, 128 rows in y, matrices in z; N is a multiple of 8. With `sums` nonzero,
// partial[matrix][128 rows][N] are the sums of d before it is rounded again.
template <typename O, bool GELU>
__global__ void __launch_bounds__(32 * kGradientWarps)
    apply_gradient(O* d, const O* aux, const unsigned char* mask, float* partial, int sums, int64 M,
                   int N) {
  __shared__ float of_warp[kGradientWarps][kPartColumns];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_column = blockIdx.x * kPartColumns, column = first_column + 8 * lane;
  const int64 first = int64{blockIdx.y} * kPartRows, matrix = blockIdx.z;
  WaitForEarlierKernels();
  LetNextKernelStart();

  float sum[8] = {};
  for (int group = 0; group < kPartRows && column < N; group += kTogether * kGradientWarps) {
    Eight<O> x[kTogether];
    Remembered<O, GELU> of[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int64 row = first + group + kGradientWarps * j + warp;
      if (row >= M) continue;
      x[j].Load(d, (matrix * M + row) * N + column);
      of[j].Load(aux, mask, matrix * M + row, column, N);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int64 row = first + group + kGradientWarps * j + warp;
      if (row >= M) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float gradient = of[j].Apply(x[j].Get(i), i);
        sum[i] += gradient;
        x[j].Set(i, gradient);
      }
      x[j].Store(d, (matrix * M + row) * N + column);
    }
  }
  if (sums == 0) return;

  StorePart(of_warp, sum, partial, N);
}

// partial[matrix][128 rows][C]: the sums of x[matrix][K][C] over those rows, for the gradient of a
// bias. Grid: as above, with C for N.
template <typename T>
__global__ void __launch_bounds__(32 * kGradientWarps)
    sum_columns(float* partial, const T* x, int64 K, int C) {
  __shared__ float of_warp[kGradientWarps][kPartColumns];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column = blockIdx.x * kPartColumns + 8 * lane;
  const int64 first = int64{blockIdx.y} * kPartRows, matrix = blockIdx.z;
  WaitForEarlierKernels();
  LetNextKernelStart();

  float sum[8] = {};
  for (int group = 0; group < kPartRows && column < C; group += kTogether * kGradientWarps) {
    Eight<T> of[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int64 row = first + group + kGradientWarps * j + warp;
      if (row < K) of[j].Load(x, (matrix * K + row) * C + column);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (first + group + kGradientWarps * j + warp >= K) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += of[j].Get(i);
    }
  }
  StorePart(of_warp, sum, partial, C);
}

// dbias[matrix][n], the sum of `parts` rows of partial. Grid: 32 columns in x, matrices in y.
template <typename O>
__global__ void __launch_bounds__(32 * kGradientWarps)
    sum_parts(O* dbias, const float* partial, int parts, int N) {
  __shared__ float of_warp[kGradientWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int n = static_cast<int>(blockIdx.x) * 32 + lane;
  const int64 matrix = blockIdx.y;
  WaitForEarlierKernels();
  LetNextKernelStart();
  float sum = 0;
#pragma unroll 4
  for (int part = warp; part < parts && n < N; part += kGradientWarps) {
    sum += partial[(matrix * parts + part) * N + n];
  }
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || n >= N) return;
#pragma unroll
  for (int i = 1; i < kGradientWarps; ++i) sum += of_warp[i][lane];
  using E = Element<O>;
  reinterpret_cast<typename E::Bits*>(dbias)[matrix * N + n] = E::ToBits(sum);
}

}  // namespace matmul
