// Products that take a kernel's start and the way to their first bytes rather than bandwidth: few
// rows by a small matrix, as decoding and heads have them, and products small altogether.
//
// What a block multiplies is read once, from memory into the registers of the lane that needs it:
// a block has some rows, a strip of columns and all of K, which its warps share out, or, where
// there are few columns, the blocks of a cluster. The tensor core's tile is 16 columns of b by 8
// rows of a. What lies where in it along K does not matter as long as both agree: a lane has eight
// neighbouring ks of every 32, so that it loads what lies together. Warps' sums are added in one
// order.
#include "ptx.cuh"

namespace matmul {

inline constexpr int kStep = 32;  // of K: what four lanes have together
inline constexpr int kTileRows = 8;

// `kWords` words that lie together.
template <int kWords>
__device__ __forceinline__ void LoadWords(unsigned (&to)[kWords], const char* from) {
  if constexpr (kWords == 1) {
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(to[0]) : "l"(from));
  } else if constexpr (kWords == 2) {
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
  } else {
    static_assert(kWords % 4 == 0, "1, 2 or a multiple of 4 words");
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      const uint4 v = LoadOnce16(from + 4 * i);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  }
}

// tile[16 columns][8 rows] += b's four words of this lane times a's two.
template <typename T>
__device__ __forceinline__ void MultiplyTile(float (&tile)[4], unsigned b0, unsigned b1,
                                             unsigned b2, unsigned b3, unsigned a0, unsigned a1);

#define KB_MULTIPLY_TILE(T, SHAPE)                                                           \
  template <>                                                                                \
  __device__ __forceinline__ void MultiplyTile<T>(float(&tile)[4], unsigned b0, unsigned b1, \
                                                  unsigned b2, unsigned b3, unsigned a0,     \
                                                  unsigned a1) {                             \
    asm volatile("mma.sync.aligned." SHAPE                                                   \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"          \
                 : "+f"(tile[0]), "+f"(tile[1]), "+f"(tile[2]), "+f"(tile[3])                \
                 : "r"(b0), "r"(b1), "r"(b2), "r"(b3), "r"(a0), "r"(a1));                    \
  }
KB_MULTIPLY_TILE(__half, "m16n8k16.row.col.f32.f16.f16.f32")
KB_MULTIPLY_TILE(__nv_bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
KB_MULTIPLY_TILE(float, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef KB_MULTIPLY_TILE

// To the nearest of tf32, as cuBLASLt rounds.
__device__ __forceinline__ unsigned Tf32(unsigned word) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(word)));
  return rounded;
}

// The eight ks of a lane in a row of a.
template <typename T>
struct RowPart {
  static constexpr int kWords = 2 * Element<T>::kBytes;
  unsigned words[kWords];

  __device__ __forceinline__ void Load(const char* from, bool there) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = 0;
    if (there) LoadWords(words, from);
  }
  // Rounded where it is used: beside the load, it would wait for it.
  __device__ __forceinline__ unsigned At(int i) const {
    return Element<T>::kBytes == 4 ? Tf32(words[i]) : words[i];
  }
};

// The eight ks of a lane in `C` columns of b, which lies row by row or, kTurned, column by column.
template <typename T, int C, bool kTurned>
struct ColumnPart {
  static constexpr int kBytes = Element<T>::kBytes;
  static constexpr int kLines = kTurned ? C : 8, kWords = (kTurned ? 8 : C) * kBytes / 4;
  unsigned words[kLines][kWords];

  // `from`: the first of them; `line`: bytes from one k, or one column, to the next.
  __device__ __forceinline__ void Load(const char* from, int64 line, bool there) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
#pragma unroll
      for (int j = 0; j < kWords; ++j) words[i][j] = 0;
      if (there) LoadWords(words[i], from + i * line);
    }
  }

  // The word of a column at k, which in 16 bits holds k + 1 too.
  __device__ __forceinline__ unsigned At(int k, int column) const {
    if constexpr (kBytes == 4) return Tf32(kTurned ? words[column][k] : words[k][column]);
    if constexpr (kTurned) return words[column][k / 2];
    const unsigned first = words[k][column / 2], second = words[k + 1][column / 2];
    return __byte_perm(first, second, column % 2 == 0 ? 0x5410 : 0x7632);
  }

  template <int kTiles>
  __device__ __forceinline__ void Multiply(float (&tiles)[kTiles][C / 2][4],
                                           const RowPart<T> (&a)[kTiles]) const {
    constexpr int kEach = 4 / kBytes;  // ks in a word
#pragma unroll
    for (int j = 0; j < C / 2; ++j) {
#pragma unroll
      for (int k = 0; k < 8; k += 2 * kEach) {
        const unsigned b0 = At(k, 2 * j), b1 = At(k, 2 * j + 1);
        const unsigned b2 = At(k + kEach, 2 * j), b3 = At(k + kEach, 2 * j + 1);
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          MultiplyTile<T>(tiles[r][j], b0, b1, b2, b3, a[r].At(k / kEach), a[r].At(k / kEach + 1));
        }
      }
    }
  }
};

// What becomes of a sum; d, c and bias are in T or, `wide`, in float: by one code for both.
template <typename T>
struct Epilogue {
  char* d;
  const char *c, *bias;
  float alpha, beta;
  int kind;  // 0: none, 1: relu, 2: gelu
  bool wide;

  __device__ __forceinline__ float Load(const char* from, int64 at) const {
    return wide ? LoadOne<float>(reinterpret_cast<const float*>(from), at)
                : LoadOne<T>(reinterpret_cast<const T*>(from), at);
  }
  __device__ __forceinline__ void Store(float sum, int64 at, int64 column) const {
    float x = alpha * sum;
    if (beta != 0) x += beta * Load(c, at);
    if (bias != nullptr) x += Load(bias, column);
    if (kind == 1) x = x < 0 ? 0 : x;  // NaN stays
    if (kind == 2) x = Gelu(x);
    if (wide) {
      StoreOne<float>(reinterpret_cast<float*>(d), at, x);
    } else {
      StoreOne<T>(reinterpret_cast<T*>(d), at, x);
    }
  }
};

// How a product is cut: columns of a lane, warps of a block, blocks of a cluster, a digit each.
template <int kPlan>
struct Cut {
  static constexpr int kColumns = kPlan / 100, kWarps = kPlan / 10 % 10, kShare = kPlan % 10;
};

// d[M, N] = epilogue(a[M, K] b) for K a multiple of 8 and N of C. Grid: strips of 8 * C columns,
// times the blocks of a cluster that share K, in x, 8 * kTiles rows in y, matrices in z.
template <typename T, int kPlan, bool kTurned, int kTiles>
__global__ void __launch_bounds__(32 * Cut<kPlan>::kWarps)
    small_product(char* d, const T* a, const T* b, const char* c, const char* bias, float alpha,
                  float beta, int kind, bool wide, int M, int N, int K) {
  constexpr int C = Cut<kPlan>::kColumns, kWarps = Cut<kPlan>::kWarps, kShare = Cut<kPlan>::kShare;
  constexpr int kColumns = 8 * C, kPairs = kColumns / 2, kBytes = Element<T>::kBytes;
  constexpr int kWords = 2 * kBytes * (C + kTiles);      // of a step
  constexpr int kAhead = kWords > 36 ? 1 : 72 / kWords;  // steps whose loads are under way
  constexpr int kStride = kStep * kWarps * kShare;
  __shared__ float2 sums[kWarps][kTileRows * kTiles * kPairs];
  __shared__ float2 shared[kShare][kTileRows * kTiles * kPairs / kShare];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4;
  const int rank = kShare == 1 ? 0 : static_cast<int>(ClusterRank());
  const int first = static_cast<int>(blockIdx.x) / kShare * kColumns, column = first + C * group;
  const int64 matrix = blockIdx.z, line = int64{kTurned ? K : N} * kBytes;
  const int64 first_row = matrix * M + blockIdx.y * kTileRows * kTiles;
  const int tall = min(kTileRows * kTiles, M - static_cast<int>(blockIdx.y) * kTileRows * kTiles);
  const char* of_a = reinterpret_cast<const char*>(a) + first_row * K * kBytes;
  const char* of_b = reinterpret_cast<const char*>(b) + matrix * K * N * kBytes;
  float tiles[kTiles][C / 2][4] = {};
  if constexpr (kShare > 1) ClusterArrive();
  WaitForEarlierKernels();
  LetNextKernelStart();

  for (int begin = kStep * (rank * kWarps + warp); begin < K; begin += kStride * kAhead) {
    ColumnPart<T, C, kTurned> columns[kAhead];
    RowPart<T> rows[kAhead][kTiles];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64 k = begin + i * kStride + 8 * (lane % 4);
      const int64 at = kTurned ? column * line + k * kBytes : k * line + int64{column} * kBytes;
      columns[i].Load(of_b + at, line, k < K && column < N);
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
        const int row = kTileRows * r + group;
        rows[i][r].Load(of_a + (int64{row} * K + k) * kBytes, k < K && row < tall);
      }
    }
    __syncwarp();  // or the compiler moves loads behind products, to save registers
#pragma unroll
    for (int i = 0; i < kAhead; ++i) columns[i].Multiply(tiles, rows[i]);
  }

#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
#pragma unroll
    for (int j = 0; j < C / 2; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = kTileRows * r + 2 * (lane % 4) + i;
        sums[warp][row * kPairs + C / 2 * group + j] = {tiles[r][j][i], tiles[r][j][i + 2]};
      }
    }
  }
  __syncthreads();
  const Epilogue<T> epilogue{d, c, bias, alpha, beta, kind, wide};
  const auto store = [&](int pair, float2 sum) {
    const int row = pair / kPairs, of = first + 2 * (pair % kPairs);
    if (row >= tall || of >= N) return;
    epilogue.Store(sum.x, (first_row + row) * N + of, of);
    epilogue.Store(sum.y, (first_row + row) * N + of + 1, of + 1);
  };
  if constexpr (kShare > 1) ClusterWait();  // until all blocks run
  for (int i = threadIdx.x; i < tall * kPairs; i += 32 * kWarps) {
    float2 sum = sums[0][i];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum = {sum.x + sums[w][i].x, sum.y + sums[w][i].y};
    if constexpr (kShare == 1) {
      store(i, sum);
    } else {
      StoreRemote(&shared[rank][i / kShare], i % kShare, sum.x, sum.y);
    }
  }
  if constexpr (kShare > 1) {
    ClusterBarrier();
    for (int i = threadIdx.x; i * kShare + rank < tall * kPairs; i += 32 * kWarps) {
      float2 sum = shared[0][i];
#pragma unroll
      for (int w = 1; w < kShare; ++w) sum = {sum.x + shared[w][i].x, sum.y + shared[w][i].y};
      store(i * kShare + rank, sum);
    }
  }
}

}  // namespace matmul
