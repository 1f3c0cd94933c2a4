// Grouped products where groups have few rows, as a layer of experts has when it writes text: each
// matrix of w is read once, as fast as memory gives it, and that is all the time there is. By the
// instructions of sm_80.
//
// A block has 64 columns of y and up to 16 rows of a group; its warps divide K among them, 32 at a
// time in turns, and add up in one order. Nothing of w goes through shared memory. The tensor
// cores multiply w transposed (16 columns of y are rows of A) by x transposed (8 rows of y are
// columns of B), and it is free which number of the depth, and which column, goes where in A and B:
// so each thread loads 16 bytes at a time, and what it has loaded is its part of fragments.
#pragma once

#include "groups.cuh"
#include "tile.cuh"

namespace grouped {

inline constexpr int kFewRows = 16, kFewColumns = 64, kFewDepth = 32;
inline constexpr int kMostFewGroups = 1024;

template <int kWarps>
struct FewMemory {
  int offsets[kMostFewGroups + 1], tiles[kMostFewGroups + 2];
  float sums[kWarps][8][kFewColumns];  // of 8 rows
};

// The numbers of lane's thread: places of the depth are 8 * (lane % 4) and the seven after it.
// Not kTrans: columns 8 * (lane / 4) and the seven after it, a chunk for each place of the depth.
// kTrans: of each 16 columns lane / 4 and the eighth after it, a chunk for each.
template <bool kTrans>
struct FewPart {
  uint4 chunk[8];

  __device__ __forceinline__ void Load(const unsigned short* w, int column, int k, int N, int K) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int depth = k + lane % 4 * 8, across = column + lane / 4 * (kTrans ? 1 : 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int n = across + (kTrans ? 8 * i : 0), d = depth + (kTrans ? 0 : i);
      const int64 at = kTrans ? int64{n} * K + d : int64{d} * N + n;
      chunk[i] = n < N && d < K ? LoadOnce16(w + at) : uint4{0, 0, 0, 0};
    }
  }

  __device__ __forceinline__ unsigned Word(int i, int word) const {
    return word == 0 ? chunk[i].x : word == 1 ? chunk[i].y : word == 2 ? chunk[i].z : chunk[i].w;
  }

  // A of 16 columns (`pair` of 4) and half of the depth.
  __device__ __forceinline__ void Fragment(unsigned (&a)[4], int pair, int half) const {
    if constexpr (kTrans) {
      a[0] = Word(2 * pair, 2 * half);
      a[1] = Word(2 * pair + 1, 2 * half);
      a[2] = Word(2 * pair, 2 * half + 1);
      a[3] = Word(2 * pair + 1, 2 * half + 1);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int d = 4 * half + i / 2 * 2;
        a[i] = __byte_perm(Word(d, pair), Word(d + 1, pair), i % 2 == 0 ? 0x5410 : 0x7632);
      }
    }
  }

  // The column of the upper (0) or lower (1) half of A's rows that lane's thread has.
  __device__ static __forceinline__ int Column(int pair, int half) {
    const int across = static_cast<int>(threadIdx.x) % 32 / 4;
    return kTrans ? 16 * pair + 8 * half + across : 8 * across + 2 * pair + half;
  }
};

// c: up to kRows rows of x, K long, times 64 columns of w from `column` on, over this warp's share
// of K. c[e][pair][i] is of row 8e + 2 (lane % 4) + i % 2, and of Column(pair, i / 2).
template <typename T, bool kTrans, int kWarps, int kRows>
__device__ __forceinline__ void FewProducts(float (&c)[kRows / 8][4][4], const unsigned short* x,
                                            const unsigned short* w, int rows, int column, int N,
                                            int K) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
  for (int k = warp * kFewDepth; k < K; k += kWarps * kFewDepth) {
    FewPart<kTrans> part;
    part.Load(w, column, k, N, K);
    uint4 of_x[kRows / 8];
    const int depth = k + lane % 4 * 8;
#pragma unroll
    for (int e = 0; e < kRows / 8; ++e) {
      const int row = 8 * e + lane / 4;
      const bool inside = row < rows && depth < K;
      of_x[e] = inside ? *reinterpret_cast<const uint4*>(x + int64{row} * K + depth) : uint4{};
    }
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned a[4];
        part.Fragment(a, pair, half);
#pragma unroll
        for (int e = 0; e < kRows / 8; ++e) {
          const uint4& b = of_x[e];
          Multiply<T>(c[e][pair], a, half == 0 ? b.x : b.z, half == 0 ? b.y : b.w);
        }
      }
    }
  }
}

// y = the warps' sums, and the bias if there is one, of rows and columns that exist.
template <typename O, bool kTrans, int kWarps, int kEights>
__device__ __forceinline__ void FewSums(FewMemory<kWarps>& memory, const float (&c)[kEights][4][4],
                                        typename Element<O>::Bits* y,
                                        const typename Element<O>::Bits* bias, int rows, int column,
                                        int N) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int n = column + lane * 2;
#pragma unroll
  for (int e = 0; e < kEights; ++e) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int pair = i / 4, half = i / 2 % 2;
      memory.sums[warp][lane % 4 * 2 + i % 2][FewPart<kTrans>::Column(pair, half)] =
          c[e][pair][i % 4];
    }
    __syncthreads();
    const int row = 8 * e + warp;  // of the first eight warps
    if (warp >= 8 || row >= rows || n >= N) continue;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int of = 0; of < kWarps; ++of) {
      low += memory.sums[of][warp][lane * 2];
      high += memory.sums[of][warp][lane * 2 + 1];
    }
    StorePair<O>(y + int64{row} * N + n, bias ? bias + n : nullptr, low, high);
  }
}

template <typename T, typename O, bool kTrans, int kWarps, int kRows>
__device__ __forceinline__ void FewTile(FewMemory<kWarps>& memory, typename Element<O>::Bits* y,
                                        const unsigned short* x, const unsigned short* w,
                                        const typename Element<O>::Bits* bias, int rows, int column,
                                        int N, int K) {
  float c[kRows / 8][4][4] = {};
  FewProducts<T, kTrans, kWarps, kRows>(c, x, w, rows, column, N, K);
  FewSums<O, kTrans, kWarps>(memory, c, y, bias, rows, column, N);
}

// y[M, N]: what MultiplyGroups computes, of N and K multiples of 8 and addresses of 16. Every block
// finds the groups' places itself.
template <typename T, typename O, bool kTrans, int kWarps>
__device__ __forceinline__ void MultiplyFew(FewMemory<kWarps>& memory, O* y, const T* x, const T* w,
                                            const O* bias, const int* sizes, int G, int M, int N,
                                            int K) {
  using OutBits = typename Element<O>::Bits;
  FindPlaces<32 * kWarps>(memory.offsets, memory.tiles, sizes, G, M, kFewRows);
  const int of_columns = (N - 1) / kFewColumns + 1;
  const int tile = static_cast<int>(blockIdx.x) / of_columns;
  const int column = static_cast<int>(blockIdx.x) % of_columns * kFewColumns;
  const int group = GroupOf(memory.tiles, G, tile);
  if (group < 0) return;
  const int first = memory.offsets[group] + (tile - memory.tiles[group]) * kFewRows;
  const int rows = min((group == G ? M : memory.offsets[group + 1]) - first, kFewRows);
  const bool some = group < G;
  const int depth = some ? K : 0;  // rows of no group are sums of nothing
  OutBits* to = reinterpret_cast<OutBits*>(y) + int64{first} * N;
  const OutBits* added = reinterpret_cast<const OutBits*>(bias);
  if (added != nullptr) added = some ? added + int64{group} * N : nullptr;
  const unsigned short* from = reinterpret_cast<const unsigned short*>(x) + int64{first} * K;
  const unsigned short* matrix =
      reinterpret_cast<const unsigned short*>(w) + (some ? int64{group} * N * K : 0);
  if (rows <= 8) {
    FewTile<T, O, kTrans, kWarps, 8>(memory, to, from, matrix, added, rows, column, N, depth);
  } else {
    FewTile<T, O, kTrans, kWarps, 16>(memory, to, from, matrix, added, rows, column, N, depth);
  }
}

}  // namespace grouped
