// d = epilogue(alpha * a op(b) + beta * c + bias) where a has at most 8 rows, so that all there is
// to do is to read b once.
//
// A block makes 64 columns of d. Its warps, and the blocks of its cluster, take turns in K: in
// each turn a warp loads 4 * STEPS times 16 bytes a lane, all of them under way together, and
// multiplies them on tensor cores. op(b) is the product's left side there, 16 columns of it for
// each instruction, and a, padded to 8 rows, its right side; that they stand idle for the most part
// is no matter, and nothing has to be widened.
//
// Which of op(b)'s columns and which k an instruction's rows and depths are is ours to say, as long
// as both sides agree. So a lane keeps what it loaded, and nothing goes through shared memory: with
// lane = 4 * g + t,
//
//   b[K, N]   a lane has columns 8g .. 8g+7 at k = 4t .. 4t+3 of 16: words of two neighbouring
//             columns become words of two neighbouring k (two permutations for two words)
//   b[N, K]   a lane has k = 8t .. 8t+7 of 32 of the columns g, g+8, .. of 64, words as they are
//
// and in both of a row g at the same k. The sums are added up over the warps in shared memory, over
// the cluster by sending them to the block that stores them, always in the same order.
#include "ptx.cuh"

namespace matmul {

inline constexpr int kColumns = 64;
inline constexpr int kRows = 8;  // at most

enum Epilogue { kNone, kRelu, kGelu };  // as the op counts them

using Bits = unsigned short;

template <int VEC>
struct Source {
  static_assert(VEC == 8, "aligned rows, or single elements");

  // Elements 0 .. 7 of those from `from` on: `left` of them are there, a multiple of 8.
  __device__ static __forceinline__ uint4 Once(const Bits* from, int left) {
    return left > 0 ? LoadOnce16(from) : uint4{0, 0, 0, 0};
  }
  __device__ static __forceinline__ uint4 Eight(const Bits* from, int left) {
    return left > 0 ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
  }
  __device__ static __forceinline__ uint2 Four(const Bits* from, int left) {
    return left > 0 ? *reinterpret_cast<const uint2*>(from) : uint2{0, 0};
  }
};

// Elements one by one, any number of which are there.
template <>
struct Source<1> {
  __device__ static __forceinline__ unsigned Two(const Bits* from, int left) {
    const unsigned low = left > 0 ? Load2(from) : 0, high = left > 1 ? Load2(from + 1) : 0;
    return low | high << 16;
  }
  __device__ static __forceinline__ uint2 Four(const Bits* from, int left) {
    return {Two(from, left), Two(from + 2, left - 2)};
  }
  __device__ static __forceinline__ uint4 Eight(const Bits* from, int left) {
    const uint2 low = Four(from, left), high = Four(from + 4, left - 4);
    return {low.x, low.y, high.x, high.y};
  }
  __device__ static __forceinline__ uint4 Once(const Bits* from, int left) {
    return Eight(from, left);
  }
};

__device__ __forceinline__ unsigned Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

struct Place {
  int g, t;    // of the lane
  int column;  // the block's first
  int M, N, K;
};

// Adds the depths k .. k + 16 * STEPS - 1 of b[K, N]. sums[i]: columns 8g + 2i and 8g + 2i + 1,
// of each the rows 2t and 2t + 1.
template <typename T, int VEC, int STEPS>
__device__ __forceinline__ void AddPlain(float (&sums)[4][4], const Bits* a, const Bits* b, int k,
                                         const Place& at) {
  uint4 right[STEPS][4];
  uint2 left[STEPS];
  k += 4 * at.t;
  const int columns_left = at.N - at.column - 8 * at.g;
  const Bits* from = b + int64{k} * at.N + at.column + 8 * at.g;
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      right[s][i] = Source<VEC>::Once(from, k + 16 * s + i < at.K ? columns_left : 0);
      from += i < 3 ? at.N : int64{13} * at.N;
      Forget(from);
    }
  }
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    const int first = k + 16 * s;
    left[s] = Source<VEC>::Four(a + int64{at.g} * at.K + first, at.g < at.M ? at.K - first : 0);
  }
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned w0 = Word(right[s][0], i), w1 = Word(right[s][1], i);
      const unsigned w2 = Word(right[s][2], i), w3 = Word(right[s][3], i);
      const unsigned columns[4] = {__byte_perm(w0, w1, 0x5410), __byte_perm(w0, w1, 0x7632),
                                   __byte_perm(w2, w3, 0x5410), __byte_perm(w2, w3, 0x7632)};
      Element<T>::Multiply(sums[i], columns, left[s].x, left[s].y);
    }
  }
}

// The same of b[N, K]. sums[i]: columns 16i + g and 16i + g + 8, of each the rows 2t and 2t + 1.
template <typename T, int VEC, int STEPS>
__device__ __forceinline__ void AddTransposed(float (&sums)[4][4], const Bits* a, const Bits* b,
                                              int k, const Place& at) {
  static_assert(STEPS % 2 == 0, "a lane loads 32 depths at a time");
  uint4 right[STEPS / 2][4][2], left[STEPS / 2];
  k += 8 * at.t;
  const Bits* from = b + int64{at.column + at.g} * at.K + k;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool is_there = at.column + 8 * i + at.g < at.N;
#pragma unroll
    for (int s = 0; s < STEPS / 2; ++s) {
      right[s][i / 2][i % 2] = Source<VEC>::Once(from + 32 * s, is_there ? at.K - k - 32 * s : 0);
    }
    from += int64{8} * at.K;
    Forget(from);
  }
#pragma unroll
  for (int s = 0; s < STEPS / 2; ++s) {
    const int first = k + 32 * s;
    left[s] = Source<VEC>::Eight(a + int64{at.g} * at.K + first, at.g < at.M ? at.K - first : 0);
  }
#pragma unroll
  for (int s = 0; s < STEPS / 2; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 &low = right[s][i][0], &high = right[s][i][1];
      const unsigned first[4] = {low.x, high.x, low.y, high.y};
      const unsigned second[4] = {low.z, high.z, low.w, high.w};
      Element<T>::Multiply(sums[i], first, left[s].x, left[s].y);
      Element<T>::Multiply(sums[i], second, left[s].z, left[s].w);
    }
  }
}

template <int WARPS>
struct Shared {
  float4 of_warp[WARPS][kRows * kColumns / 4];  // [row][column]
  float4 of_block[kRows * kColumns / 4];        // [block of the cluster][of this block's share]
  unsigned long long arrived;
};

__device__ __forceinline__ void Add(float4& sum, const float4& v) {
  sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
}

// What happens to the sum of row m, column n of matrix `batch`.
template <typename O>
struct Results {
  O* d;
  const O *c, *bias;
  float alpha, beta;
  int epilogue, M, N;

  __device__ __forceinline__ void Store(float sum, int64 batch, int m, int n) const {
    using E = Element<O>;
    using Stored = typename E::Stored;
    const int64 at = (batch * M + m) * N + n;
    float x = alpha * sum;
    if (c != nullptr && beta != 0) x += beta * E::Widen(reinterpret_cast<const Stored*>(c)[at]);
    if (bias != nullptr) x += E::Widen(reinterpret_cast<const Stored*>(bias)[n]);
    if (epilogue == kRelu) x = x < 0 ? 0 : x;  // NaN stays
    if (epilogue == kGelu) x = Gelu(x);
    reinterpret_cast<Stored*>(d)[at] = E::Round(x);
  }
};

// Grid: the 1, 2, 4 or 8 blocks of a cluster in x, 64 columns in y, matrices in z. M is at most 8.
// VEC 8 needs rows of a and b that are multiples of 16 bytes, 1 takes any.
template <typename T, typename O, bool TRANSPOSED, int VEC, int WARPS, int STEPS>
__global__ void __launch_bounds__(32 * WARPS, (VEC == 8 && STEPS == 2 ? 24 : 16) / WARPS)
    skinny(O* d, const T* a, const T* b, const O* c, const O* bias, float alpha, float beta,
           int epilogue, int M, int N, int K) {
  __shared__ Shared<WARPS> shared;
  const int blocks = gridDim.x, rank = blockIdx.x, column = blockIdx.y * kColumns;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int log_blocks = __ffs(blocks) - 1;
  const int quads = M * kColumns / 4, share = quads >> log_blocks;  // four sums at a time
  if (blocks > 1) {
    if (threadIdx.x == 0) ExpectBytes(&shared.arrived, blocks * share * 16);
    ClusterArrive();
  }
  WaitForEarlierKernels();
  LetNextKernelStart();

  float sums[4][4] = {};
  const Place at{g, t, column, M, N, K};
  const Bits* rows = reinterpret_cast<const Bits*>(a) + int64{blockIdx.z} * M * K;
  const Bits* matrix = reinterpret_cast<const Bits*>(b) + int64{blockIdx.z} * K * N;
  constexpr int kDepth = 16 * STEPS;
  for (int turn = rank * WARPS + warp; turn < (K + kDepth - 1) / kDepth; turn += blocks * WARPS) {
    if constexpr (TRANSPOSED) {
      AddTransposed<T, VEC, STEPS>(sums, rows, matrix, turn * kDepth, at);
    } else {
      AddPlain<T, VEC, STEPS>(sums, rows, matrix, turn * kDepth, at);
    }
  }

  float* own = reinterpret_cast<float*>(shared.of_warp[warp]);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int half = i / 2 % 2, row = 2 * t + i % 2;
    const int place = TRANSPOSED ? 16 * (i / 4) + 8 * half + g : 8 * g + 2 * (i / 4) + half;
    if (row < M) own[row * kColumns + place] = sums[i / 4][i % 4];
  }
  __syncthreads();
  if (blocks > 1) ClusterWait();

  // Block `rank` adds up and stores the quads rank, rank + blocks, ..
  if (threadIdx.x < quads) {
    float4 sum = shared.of_warp[0][threadIdx.x];
#pragma unroll
    for (int i = 1; i < WARPS; ++i) Add(sum, shared.of_warp[i][threadIdx.x]);
    const int to = threadIdx.x & (blocks - 1), place = rank * share + (threadIdx.x >> log_blocks);
    if (blocks > 1) {
      Send16(&shared.of_block[place], &shared.arrived, to, sum);
    } else {
      shared.of_block[place] = sum;
    }
  }
  if (blocks > 1) {
    WaitForBytes(&shared.arrived);
  } else {
    __syncthreads();
  }
  const Results<O> results{d, c, bias, alpha, beta, epilogue, M, N};
  const float* summed = reinterpret_cast<const float*>(shared.of_block);
#pragma unroll 1
  for (int i = threadIdx.x; i < 4 * share; i += 32 * WARPS) {
    float sum = summed[i];
#pragma unroll
    for (int block = 1; block < 8; ++block) {
      if (block < blocks) sum += summed[4 * block * share + i];
    }
    const int place = 4 * ((i / 4 << log_blocks) + rank) + i % 4, n = column + place % kColumns;
    if (n < N) results.Store(sum, blockIdx.z, place / kColumns, n);
  }
}

}  // namespace matmul
