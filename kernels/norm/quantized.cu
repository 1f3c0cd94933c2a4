// Kernels of norms whose y goes to FP8. The manifest says where each is legal.
#include "quantized_ahead.cuh"
#include "quantized_packed.cuh"
#include "transpose.cuh"

namespace norms {

#define QUANTIZED_PARAMETERS                                                              \
  float *mu, float *rsigma, T *sum, const T *x, const T *residual, const void *gamma,     \
      const void *beta, float epsilon, float center, bool wide, int H, int64 rows,        \
      unsigned char *q, float *amax, float *scale_inv, float *groups, const float *scale, \
      float amax_epsilon, bool power_of_two, bool e5m2
#define QUANTIZED_CALL                                                          \
  WaitForEarlierKernels();                                                      \
  const ForwardCall<T> call{nullptr, mu,      rsigma, sum,  x, residual, gamma, \
                            beta,    epsilon, center, wide, H, rows};           \
  const Codes to { q, amax, scale_inv, groups, scale, {amax_epsilon, power_of_two}, e5m2 }

// Threads on a multiprocessor; one holds a row's elements and, packed, those of the next row.
template <int VEC, int N, typename Team>
inline constexpr int kAhead = VEC == 8 && N == 4 && Team::kThreads == 256 ? 768 : 512;

template <typename T, bool kLayer, bool kByGroup, int VEC, int N, typename Team>
__global__ void __launch_bounds__(Team::kThreads, kAhead<VEC, N, Team> / Team::kThreads)
    quantized_ahead(QUANTIZED_PARAMETERS) {
  QUANTIZED_CALL;
  RowsAhead<kLayer, kByGroup, VEC, N>(call, to, Team(blockDim.x), blockIdx.x, gridDim.x);
}

template <typename T, int VEC, int N, typename Team>
__global__ void __launch_bounds__(Team::kThreads, 768 / Team::kThreads)
    quantized_packed(QUANTIZED_PARAMETERS) {
  QUANTIZED_CALL;
  QuantizedPackedRows<VEC, N>(call, to, Team(blockDim.x), blockIdx.x, gridDim.x);
}

// Threads on a multiprocessor: as many as do not spill.
template <bool kLayer, int VEC, typename Team>
inline constexpr int kResident = VEC == 4                          ? 512
                                 : kLayer || Team::kThreads != 256 ? 768
                                                                   : 1024;

template <typename T, bool kLayer, int VEC, int N, typename Team>
__global__ void __launch_bounds__(Team::kThreads, kResident<kLayer, VEC, Team> / Team::kThreads)
    quantized(QUANTIZED_PARAMETERS) {
  QUANTIZED_CALL;
  QuantizedRows<kLayer, VEC, N>(call, to, Team(blockDim.x), blockIdx.x, gridDim.x);
}

template <typename T>
__global__ void __launch_bounds__(512, 1) quantized_long(QUANTIZED_PARAMETERS) {
  QUANTIZED_CALL;
  QuantizedLongRows(call, to, Block<512>(512), blockIdx.x, gridDim.x);
}

// q_t[H, rows] of q[rows, H]: the last rows first, for the kernel in front of this one has just
// written them, and the second level of caches holds them still.
__global__ void __launch_bounds__(kTileThreads)
    transpose_codes(unsigned char* q_t, const unsigned char* q, int64 rows, int64 H,
                    bool straight) {
  __shared__ ByteTile tile;
  const int64 across = (H + kTile - 1) / kTile, tiles = (rows + kTile - 1) / kTile * across;
  WaitForEarlierKernels();
  for (int64 at = tiles - 1 - blockIdx.x; at >= 0; at -= gridDim.x)
    TransposeTile(tile, q_t, q, rows, H, at / across * kTile, at % across * kTile, straight);
}

}  // namespace norms
