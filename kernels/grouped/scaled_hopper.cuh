// Products of FP8 rows with the matrix of their group for sm_90a, scales for each 128 of the depth.
//
// Blocks stay, and take one tile of 128 rows x kColumns columns after the other. One warp loads: a
// ring of stages, each 128 of the depth of both operands by the copy engine, and the scales that go
// with it. Two warp groups multiply, 64 rows each, 128 columns at a time: the tensor cores' sums
// over 128 of the depth, which have few bits, are scaled and added to sums in float32, while the
// tensor cores work for the other warp group.
//
//   loads:      wait empty[s] -> x, w, scales of k            -> full[s]
//   multiplies: wait full[s]  -> part = x w; sums += part * s -> empty[s]
//
// Where groups lie every block finds for itself, in shared memory; nothing else looks at sizes.
#pragma once

#include "groups.cuh"
#include "hopper_ptx.cuh"
#include "scales.cuh"

namespace grouped {

template <typename Q, typename O, int kColumns, int kStages>
struct Scaled {
  static constexpr int kRows = 128, kDepth = 128;
  static constexpr int kMath = 256, kThreads = kMath + 128;  // those that multiply come first
  static constexpr int kHalves = kColumns / 128;
  static constexpr unsigned kBand =
      8;  // tiles below one another that are computed at about one time
  static constexpr int kMostGroups = 1024;
  static constexpr unsigned kXBytes = kRows * kDepth, kStageBytes = kXBytes + kColumns * kDepth;
  using OutBits = typename Element<O>::Bits;

  struct Memory {
    ByteBarrier full[kStages], empty[kStages];
    float of_x[kStages][kRows], of_w[kStages][kHalves];
    int offsets[kMostGroups + 1], tiles[kMostGroups + 2];
  };

  struct Where {
    int group, row, rows, column;  // rows: how many of the tile's there are
  };

  Memory& memory;
  unsigned stages;  // address of the first, a multiple of 1024
  Extent extent;
  int stage = 0;
  unsigned phase = 0;

  __device__ __forceinline__ void Next() {
    stage = stage == kStages - 1 ? 0 : stage + 1;
    phase ^= stage == 0 ? 1 : 0;
  }

  __device__ __forceinline__ int Parts() const { return (extent.K - 1) / kDepth + 1; }

  // Of tile number `tile`; false: there is none. Group by group, in bands of tiles of rows, all
  // columns of a band before the next.
  __device__ __forceinline__ bool Find(unsigned tile, Where& at) const {
    const unsigned across = (extent.N - 1) / kColumns + 1;
    at.group = GroupOf(memory.tiles, extent.G, tile / across);
    if (at.group < 0) return false;
    const unsigned first = memory.tiles[at.group], down = memory.tiles[at.group + 1] - first;
    const unsigned within = tile - first * across;
    const unsigned band = within / (kBand * across), in_band = min(kBand, down - band * kBand);
    const unsigned rest = within - band * kBand * across;
    const int below = static_cast<int>((band * kBand + rest % in_band) * kRows);
    const int end = at.group == extent.G ? extent.M : memory.offsets[at.group + 1];
    at.row = memory.offsets[at.group] + below;
    at.rows = min(kRows, end - at.row);
    at.column = static_cast<int>(rest / in_band * kColumns);
    return true;
  }

  // By one warp.
  __device__ __forceinline__ void LoadAll(const TensorMap* x, const TensorMap* w,
                                          const RowScales& of_x, const MatrixScales& of_w) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Where at;
    for (unsigned tile = blockIdx.x; Find(tile, at); tile += gridDim.x) {
      if (at.group == extent.G) continue;
      const int columns = at.column / 128 + lane;
      const bool scaled = lane < kHalves && columns <= (extent.N - 1) / 128;
      const float* from_w =
          of_w.data + at.group * of_w.group + (scaled ? columns * of_w.columns : 0);
      const float* from_x = of_x.data + (at.row + lane) * of_x.row;
      for (int k = 0; k < Parts(); ++k) {
        Await(&memory.empty[stage], phase ^ 1);
        if (lane == 0) {
          const unsigned to = stages + stage * kStageBytes;
          Expect(&memory.full[stage], kStageBytes);
          LoadBox(to, x, &memory.full[stage], k * kDepth, at.row);
          LoadBox(to + kXBytes, w, &memory.full[stage], k * kDepth, at.column, at.group);
        }
        const float* from = from_x;
#pragma unroll
        for (int row = 0; row < kRows; row += 32) {
          const bool inside = row + lane < at.rows;
          CopyAsync4(&memory.of_x[stage][row + lane], inside ? from : of_x.data, inside);
          from += 32 * of_x.row;
        }
        if (lane < kHalves) CopyAsync4(&memory.of_w[stage][lane], from_w, scaled);
        ArriveWithCopies(&memory.full[stage]);
        from_w += of_w.depth;
        from_x += of_x.depth;
        Next();
      }
    }
  }

  // By the other warp groups: number `group` of them has the tile's rows from 64 * group on.
  __device__ __forceinline__ void MultiplyAll(OutBits* y, const OutBits* bias, int group) {
    Where at;
    for (unsigned tile = blockIdx.x; Find(tile, at); tile += gridDim.x) {
      float sums[kHalves][64];
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
#pragma unroll
        for (int i = 0; i < 64; ++i) sums[h][i] = 0.0f;
      const bool some = at.group<extent.G, mine = at.rows> 64 * group;
      for (int k = 0; some && k < Parts(); ++k) {
        Await(&memory.full[stage], phase);
        if (mine) {
          AddPart(sums, group);
        } else {
          Release();
        }
        Next();
      }
      if (!mine) continue;
      const OutBits* added = some && bias != nullptr ? bias + int64{at.group} * extent.N : nullptr;
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
        Store(sums[h], y, added, at.row, at.rows, 64 * group, at.column + 128 * h);
    }
  }

  // The stage may be loaded anew. Every warp says so.
  __device__ __forceinline__ void Release() {
    if (threadIdx.x % 32 == 0) Arrive(&memory.empty[stage]);
  }

  __device__ __forceinline__ void AddPart(float (&sums)[kHalves][64], int group) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const int row = 64 * group + thread / 32 * 16 + thread % 32 / 4;
    const float upper = memory.of_x[stage][row], lower = memory.of_x[stage][row + 8];
    float of_w[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) of_w[h] = memory.of_w[stage][h];
    const unsigned at = stages + stage * kStageBytes;
    const unsigned long long x = Lines128(at + group * (64 * kDepth)), w = Lines128(at + kXBytes);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float part[64];
      BeginProducts();
#pragma unroll
      for (int k = 0; k < kDepth; k += 32)
        WarpsProduct<Q>(part, x + k / 16, w + (h * 128 * kDepth + k) / 16, k > 0);
      EndProducts(part);
      if (h == kHalves - 1) Release();
      const float above = upper * of_w[h], below = lower * of_w[h];
#pragma unroll
      for (int i = 0; i < 64; i += 4) {
        sums[h][i] = __fmaf_rn(part[i], above, sums[h][i]);
        sums[h][i + 1] = __fmaf_rn(part[i + 1], above, sums[h][i + 1]);
        sums[h][i + 2] = __fmaf_rn(part[i + 2], below, sums[h][i + 2]);
        sums[h][i + 3] = __fmaf_rn(part[i + 3], below, sums[h][i + 3]);
      }
    }
  }

  // 64 rows and 128 columns of the sums, rounded, with their group's bias. N is a multiple of 8.
  __device__ __forceinline__ void Store(float (&sums)[64], OutBits* y, const OutBits* bias,
                                        int first, int rows, int row, int column) const {
    const int thread = static_cast<int>(threadIdx.x) % 128, place = thread % 4;
    row += thread / 32 * 16 + thread % 32 / 4;
    if (bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 64; i += 4) {
        const int n = column + i * 2 + place * 2;
        const bool inside = n < extent.N;
        const float low = inside ? Element<O>::FromBits(bias[n]) : 0.0f;
        const float high = inside ? Element<O>::FromBits(bias[n + 1]) : 0.0f;
        sums[i] += low, sums[i + 1] += high, sums[i + 2] += low, sums[i + 3] += high;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = row + 8 * half;
      OutBits* to = y + int64{first + m} * extent.N + column;
      const bool inside = m < rows;
      if constexpr (sizeof(OutBits) == 4) {
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const float2 both = {sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]};
          if (inside && column + 8 * j < extent.N)
            *reinterpret_cast<float2*>(to + 8 * j + 2 * place) = both;
        }
      } else {
#pragma unroll
        for (int j = 0; j < 16; j += 4) {
          unsigned words[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            words[i] =
                Element<O>::Pack(sums[4 * (j + i) + 2 * half], sums[4 * (j + i) + 2 * half + 1]);
          TransposeInFours(words);
          if (inside && column + 8 * (j + place) < extent.N)
            *reinterpret_cast<uint4*>(to + 8 * (j + place)) = {words[0], words[1], words[2],
                                                               words[3]};
        }
      }
    }
  }

  // Word i of lane j of each four lanes becomes word j of lane i.
  __device__ static __forceinline__ void TransposeInFours(unsigned (&words)[4]) {
    const int place = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int by = 1; by < 4; by *= 2) {
      const bool upper = (place & by) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & by) != 0) continue;
        const unsigned kept = upper ? words[i | by] : words[i];
        const unsigned sent = upper ? words[i] : words[i | by];
        const unsigned got = __shfl_xor_sync(0xffffffffu, sent, by);
        words[i] = upper ? got : kept;
        words[i | by] = upper ? kept : got;
      }
    }
  }
};

}  // namespace grouped
