// Products of tiles of FP8 operands for every GPU: codes become f16 on their way to shared memory,
// which holds all of them, and what tile.cuh sums over 128 of the depth is scaled in float32.
#pragma once

#include "groups.cuh"
#include "kbundle/device_fp8.h"
#include "scales.cuh"
#include "tile.cuh"

namespace grouped {

// Two codes in the low half of a word, as two f16.
template <typename Q>
__device__ __forceinline__ unsigned TwoHalves(unsigned codes);

template <>
__device__ __forceinline__ unsigned TwoHalves<__nv_fp8_e4m3>(unsigned codes) {
#if __CUDA_ARCH__ >= 890
  unsigned halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(codes)));
  return halves;
#else
  float low, high;
  kbundle::device::Fp8<__nv_fp8_e4m3>::Widen(codes & 0xffffu, low, high);
  return static_cast<unsigned>(Element<__half>::ToBits(low)) |
         static_cast<unsigned>(Element<__half>::ToBits(high)) << 16;
#endif
}

template <>
__device__ __forceinline__ unsigned TwoHalves<__nv_fp8_e5m2>(unsigned codes) {
  return (codes & 0xffu) << 8 | (codes & 0xff00u) << 16;  // the upper half of an f16 each
}

// 128 lines x 128 lines, which lie along the depth.
struct ScaledTile {
  using C = Tile<__half>;
  static constexpr int kPart = 128;  // of the depth, between two scales
  struct Memory {
    C::Memory tiles;
  };

  C c;
  float sums[4][4][4];

  struct Codes {
    unsigned words[4];
  };

  // This thread's 16 codes of a tile of 128 lines x 32: of one line, half of it.
  template <bool kVector>
  __device__ static __forceinline__ Codes Load(const Operand<unsigned char>& from, int line,
                                               int k) {
    line += static_cast<int>(threadIdx.x) / 2;
    k += static_cast<int>(threadIdx.x) % 2 * 16;
    Codes codes = {{0, 0, 0, 0}};
    if constexpr (kVector) {
      if (line < from.lines && k < from.depth)
        codes = *reinterpret_cast<const Codes*>(from.data + line * from.stride + k);
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        codes.words[i / 4] |= static_cast<unsigned>(from.At<false>(line, k + i)) << (i % 4 * 8);
    }
    return codes;
  }

  template <typename Q>
  __device__ static __forceinline__ void Keep(unsigned tile, const Codes& codes) {
    const int line = static_cast<int>(threadIdx.x) / 2, half = static_cast<int>(threadIdx.x) % 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned low = codes.words[2 * i], high = codes.words[2 * i + 1];
      StoreShared16(tile + C::Chunk<false>(line, 2 * half + i),
                    {TwoHalves<Q>(low), TwoHalves<Q>(low >> 16), TwoHalves<Q>(high),
                     TwoHalves<Q>(high >> 16)});
    }
  }

  // sums += c * scales of `part` of the depth; c = 0.
  __device__ __forceinline__ void Promote(const RowScales& of_x, int row, int rows, float of_w,
                                          int part) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int line = row + warp / 4 * 64 + m * 16 + half * 8 + lane / 4;
        const float scale =
            line < rows ? of_x.data[line * of_x.row + part * of_x.depth] * of_w : 0.0f;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            sums[m][n][i] = __fmaf_rn(c.c[m][n][i], scale, sums[m][n][i]);
            c.c[m][n][i] = 0.0f;
          }
        }
      }
    }
  }

  // c = the scaled product of lines of x from `row` on and of w from `column` on, with the scales
  // of this group's rows and of w's 128 columns, of_w[part * of_w_depth].
  template <typename Q, bool kVector>
  __device__ __forceinline__ void Sum(Memory& memory, const Operand<unsigned char>& x,
                                      const RowScales& of_x, int row,
                                      const Operand<unsigned char>& w, const float* of_w,
                                      int64 of_w_depth, int column) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      c.c[i / 16][i / 4 % 4][i % 4] = 0.0f;
      sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
    }
    const unsigned start = SharedAddress(memory.tiles.bytes);
    Codes of_row = Load<kVector>(x, row, 0), of_column = Load<kVector>(w, column, 0);
    for (int k = 0; k < x.depth; k += C::kDepth) {
      const unsigned a = start + k / C::kDepth % 2 * (2 * C::kHalf), b = a + C::kHalf;
      Keep<Q>(a, of_row);
      Keep<__nv_fp8_e4m3>(b, of_column);
      __syncthreads();  // this part is there, and all are done with the one before the last
      of_row = Load<kVector>(x, row, k + C::kDepth);
      of_column = Load<kVector>(w, column, k + C::kDepth);
      c.template Step<false, false>(a, b);
      if ((k + C::kDepth) % kPart == 0 || k + C::kDepth >= x.depth)
        Promote(of_x, row, x.lines, of_w[k / kPart * of_w_depth], k / kPart);
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) c.c[i / 16][i / 4 % 4][i % 4] = sums[i / 16][i / 4 % 4][i % 4];
  }
};

// y[M, N]: rows of group g times w[g], N x K, both FP8. Rows of no group: 0.
template <typename Q, typename O, bool kVector>
__device__ __forceinline__ void MultiplyScaled(ScaledTile::Memory& memory, O* y,
                                               const unsigned char* x, const unsigned char* w,
                                               const RowScales& of_x, const MatrixScales& of_w,
                                               const O* bias, const int* offsets, const int* tiles,
                                               const Extent& extent) {
  using C = ScaledTile::C;
  using OutBits = typename Element<O>::Bits;
  const int N = extent.N, K = extent.K, G = extent.G;
  const int of_columns = (N - 1) / C::kColumns + 1;
  const int64 tile = blockIdx.x / of_columns;
  const int column = static_cast<int>(blockIdx.x % of_columns) * C::kColumns;
  const int group = GroupOf(tiles, G, tile);
  if (group < 0) return;
  const int first = offsets[group], rows = (group == G ? extent.M : offsets[group + 1]) - first;
  const int row = static_cast<int>(tile - tiles[group]) * C::kRows;
  const bool some = group < G;
  const int64 which = some ? group : 0;  // a group that there is
  ScaledTile c;
  c.Sum<Q, kVector>(memory, Operand<unsigned char>{x + int64{first} * K, K, rows, some ? K : 0},
                    {of_x.data + first * of_x.row, of_x.row, of_x.depth}, row,
                    Operand<unsigned char>{w + which * N * K, K, N, K},
                    of_w.data + which * of_w.group + column / ScaledTile::kPart * of_w.columns,
                    of_w.depth, column);
  const OutBits* added = reinterpret_cast<const OutBits*>(bias);
  if (added != nullptr) added = some ? added + int64{group} * N : nullptr;
  Store<O, kVector>(c.c, reinterpret_cast<OutBits*>(y) + int64{first} * N, added, row, rows, column,
                    N);
}

}  // namespace grouped
