// Products of tiles, for every GPU: C[128][128] of 16-bit elements by tensor cores, C[64][64] of
// f32 by themselves. 256 threads.
//
// An operand has lines (rows of C, or its columns) along the depth that is summed over. In memory
// either a line is together (kDown false) or neighbouring lines are, and the depth goes down.
// Shared memory holds a part of the depth the same way round, in chunks of 16 bytes which change
// places within 8 or 4 of them, by an exclusive or with a number that goes with the row: 8 chunks
// that a matrix load or neighbouring threads touch together lie in 8 groups of banks.
#pragma once

#include "ptx.cuh"

namespace grouped {

inline constexpr int kThreads = 256;

// Lines and depth past the end read as zero.
template <typename Bits>
struct Operand {
  const Bits* data;
  int64 stride;      // elements from line to line, or from one step of the depth to the next
  int lines, depth;  // how many there are

  template <bool kDown>
  __device__ __forceinline__ Bits At(int line, int k) const {
    const bool inside = line < lines && k < depth;
    return inside ? data[kDown ? k * stride + line : line * stride + k] : Bits{0};
  }
};

template <typename T>
struct Tile {  // __half, __nv_bfloat16
  using Bits = unsigned short;
  static constexpr int kRows = 128, kColumns = 128, kDepth = 32, kStages = 3;
  static constexpr int kPairs = 32;       // of neighbouring columns, that a thread has of C
  static constexpr int kHalf = 128 * 64;  // bytes of an operand's part
  struct alignas(128) Memory {
    unsigned char bytes[kStages * 2 * kHalf];
  };
  float c[4][4][4];  // of a warp's 64 x 32: 16 x 8 each

  // Byte offset of a chunk.
  template <bool kDown>
  __device__ static __forceinline__ unsigned Chunk(int row, unsigned chunk) {
    if (kDown) return row * 256 + ((chunk ^ (row & 7)) << 4);  // 32 rows of 16 chunks
    return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);       // 128 rows of 4
  }

  template <bool kDown, bool kVector>
  __device__ static __forceinline__ void Load(unsigned to, const Operand<Bits>& from, int line,
                                              int k) {
    constexpr int kInRow = kDown ? 16 : 4;
#pragma unroll
    for (int pass = 0; pass < 512 / kThreads; ++pass) {
      const int i = pass * kThreads + static_cast<int>(threadIdx.x);
      const int row = i / kInRow, chunk = i % kInRow;
      const int l = line + (kDown ? chunk * 8 : row), d = k + (kDown ? row : chunk * 8);
      const unsigned at = to + Chunk<kDown>(row, chunk);
      if constexpr (kVector) {
        const bool inside = l < from.lines && d < from.depth;
        const int64 place = kDown ? d * from.stride + l : l * from.stride + d;
        CopyAsync16(at, inside ? from.data + place : from.data, inside);
      } else {
        unsigned words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int e = 2 * j;
          const Bits low =
              kDown ? from.template At<kDown>(l + e, d) : from.template At<kDown>(l, d + e);
          const Bits high =
              kDown ? from.template At<kDown>(l + e + 1, d) : from.template At<kDown>(l, d + e + 1);
          words[j] = low | static_cast<unsigned>(high) << 16;
        }
        StoreShared16(at, {words[0], words[1], words[2], words[3]});
      }
    }
  }

  // Fragments of 16 lines and 16 of the depth: as an A operand (rows first), or two B operands.
  template <bool kDown, bool kIsA>
  __device__ static __forceinline__ void Fragment(unsigned (&r)[4], unsigned tile, int line,
                                                  int k) {
    const int lane = static_cast<int>(threadIdx.x) % 32, low = lane & 7;
    // Which of the four matrices lies 8 lines further, and which 8 further down.
    const int second = (lane >> 3) & 1, third = lane >> 4;
    const int lines = kIsA ? second : third, depth = kIsA ? third : second;
    if constexpr (kDown) {
      LoadTransposed(r, tile + Chunk<true>(k + 8 * depth + low, line / 8 + lines));
    } else {
      LoadMatrices(r, tile + Chunk<false>(line + 8 * lines + low, k / 8 + depth));
    }
  }

  template <bool kDownA, bool kDownB>
  __device__ __forceinline__ void Step(unsigned a, unsigned b) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      unsigned fa[4][4];
#pragma unroll
      for (int m = 0; m < 4; ++m) Fragment<kDownA, true>(fa[m], a, warp / 4 * 64 + m * 16, k);
#pragma unroll
      for (int n = 0; n < 4; n += 2) {
        unsigned fb[4];
        Fragment<kDownB, false>(fb, b, warp % 4 * 32 + n * 8, k);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          Multiply<T>(c[m][n], fa[m], fb[0], fb[1]);
          Multiply<T>(c[m][n + 1], fa[m], fb[2], fb[3]);
        }
      }
    }
  }

  // C = the product of lines of A from `row` on and lines of B from `column` on. Every thread of
  // the block calls it.
  template <bool kDownA, bool kDownB, bool kVector>
  __device__ __forceinline__ void Sum(Memory& memory, const Operand<Bits>& a, int row,
                                      const Operand<Bits>& b, int column) {
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[m][n][i] = 0.0f;
    const unsigned start = SharedAddress(memory.bytes);
    const auto load = [&](int k, int stage) {
      if (k < a.depth) {
        Load<kDownA, kVector>(start + stage * 2 * kHalf, a, row, k);
        Load<kDownB, kVector>(start + stage * 2 * kHalf + kHalf, b, column, k);
      }
      CommitCopies();
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) load(i * kDepth, i);
    int stage = 0;
    for (int k = 0; k < a.depth; k += kDepth) {
      WaitCopiesBut<kStages - 2>();
      __syncthreads();  // this part has arrived, and all are done with the one before it
      load(k + (kStages - 1) * kDepth, stage == 0 ? kStages - 1 : stage - 1);
      Step<kDownA, kDownB>(start + stage * 2 * kHalf, start + stage * 2 * kHalf + kHalf);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  }

  // Pair i < kPairs of neighbouring columns: its row and column in C, and the two numbers.
  __device__ __forceinline__ void Pair(int i, int* row, int* column, float* low,
                                       float* high) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int m = i / 8, n = i / 2 % 4, half = i % 2;
    *row = warp / 4 * 64 + m * 16 + half * 8 + lane / 4;
    *column = warp % 4 * 32 + n * 8 + lane % 4 * 2;
    *low = c[m][n][2 * half];
    *high = c[m][n][2 * half + 1];
  }
};

// Each thread has 4 x 4 of C.
template <>
struct Tile<float> {
  using Bits = unsigned;
  static constexpr int kRows = 64, kColumns = 64, kDepth = 16, kPairs = 8;
  struct Memory {
    float a[kDepth][kRows + 1], b[kDepth][kColumns + 1];
  };
  float c[4][4];

  template <bool kDown>
  __device__ static __forceinline__ void Load(float (&to)[kDepth][kRows + 1],
                                              const Operand<Bits>& from, int line, int k) {
#pragma unroll
    for (int pass = 0; pass < kDepth * kRows / kThreads; ++pass) {
      const int i = pass * kThreads + static_cast<int>(threadIdx.x);
      const int l = kDown ? i % kRows : i / kDepth, d = kDown ? i / kRows : i % kDepth;
      to[d][l] = __uint_as_float(from.template At<kDown>(line + l, k + d));
    }
  }

  template <bool kDownA, bool kDownB, bool>
  __device__ __forceinline__ void Sum(Memory& memory, const Operand<Bits>& a, int row,
                                      const Operand<Bits>& b, int column) {
    const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) c[i][j] = 0.0f;
    for (int k = 0; k < a.depth; k += kDepth) {
      Load<kDownA>(memory.a, a, row, k);
      Load<kDownB>(memory.b, b, column, k);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        float of_b[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) of_b[j] = memory.b[d][j / 2 * 32 + x * 2 + j % 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float of_a = memory.a[d][y * 4 + i];
#pragma unroll
          for (int j = 0; j < 4; ++j) c[i][j] = __fmaf_rn(of_a, of_b[j], c[i][j]);
        }
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ void Pair(int i, int* row, int* column, float* low,
                                       float* high) const {
    const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
    *row = y * 4 + i / 2;
    *column = i % 2 * 32 + x * 2;
    *low = c[i / 2][2 * (i % 2)];
    *high = c[i / 2][2 * (i % 2) + 1];
  }
};

// Two neighbouring elements at once, aligned; bias: its two, if there is one.
template <typename O>
__device__ __forceinline__ void StorePair(typename Element<O>::Bits* to,
                                          const typename Element<O>::Bits* bias, float low,
                                          float high) {
  using E = Element<O>;
  struct alignas(2 * E::kBytes) Both {
    typename E::Bits low, high;
  };
  if (bias != nullptr) low += E::FromBits(bias[0]), high += E::FromBits(bias[1]);
  *reinterpret_cast<Both*>(to) = {E::ToBits(low), E::ToBits(high)};
}

// out[rows][columns] at C's `row` and `column`, = C + bias[columns], if there is one. kPair: two
// elements are stored at once, aligned.
template <typename O, bool kPair, typename C>
__device__ __forceinline__ void Store(const C& c, typename Element<O>::Bits* out,
                                      const typename Element<O>::Bits* bias, int row, int rows,
                                      int column, int columns) {
  using E = Element<O>;
  using Bits = typename E::Bits;
#pragma unroll
  for (int i = 0; i < C::kPairs; ++i) {
    int m, n;
    float low, high;
    c.Pair(i, &m, &n, &low, &high);
    m += row;
    n += column;
    if (m >= rows || n >= columns) continue;
    if (bias != nullptr) {
      low += E::FromBits(bias[n]);
      if (n + 1 < columns) high += E::FromBits(bias[n + 1]);
    }
    Bits* at = out + int64{m} * columns + n;
    if constexpr (kPair) {
      StorePair<O>(at, nullptr, low, high);
    } else {
      at[0] = E::ToBits(low);
      if (n + 1 < columns) at[1] = E::ToBits(high);
    }
  }
}

}  // namespace grouped
