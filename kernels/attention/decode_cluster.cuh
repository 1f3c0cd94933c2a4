// Decode in clusters: the blocks of one share a unit (decode_split.h), equal parts of its keys, and
// add up in each other's shared memory. Nothing is left for a second kernel, which is what takes
// longest where little is read; but a cluster's blocks wait for the one with most keys, and what
// multiprocessors no cluster fills are idle.
#pragma once

#include "cluster.cuh"
#include "decode.cuh"

namespace attention {

// Block is a Decode<..>, whose way through its tiles this is, but for what comes at the end of one.
template <typename Block>
struct ClusterDecode : Block {
  using Block::call, Block::loader, Block::thread, Block::kHead, Block::kRows, Block::kStages;
  using Block::kThreads;
  using Shape = typename Block::Shape;
  static constexpr int kQuads = kHead / 4;  // of a row
  // Of a row the largest score, in powers of two, and the sum over it, behind all else.
  static constexpr int kShared = Shape::kShared + kRows * sizeof(float2);
  static_assert(kStages * Shape::kBytesQ >= kRows * kHead * 4, "sums lie where queries were");

  using Block::Block;

  __device__ __forceinline__ unsigned SumsAt(int row, int column) const {
    return loader.StageOf(kStages) + (row * kHead + column) * 4;
  }
  __device__ __forceinline__ unsigned StateAt(int row) const {
    return loader.shared + Shape::kShared + row * 8;
  }

  // This block's sums of the rows of its unit, to where the others find them.
  __device__ __forceinline__ void Leave(int stage, float factor) {
    const int rows = this->RowsNow();
    this->Gather(stage, factor, rows);
    for (int i = thread; i < rows * kQuads; i += kThreads) {
      const int local = i / kQuads, column = i % kQuads * 4;
      const Partial<4> sums = this->OverWarps(stage, local, column);
      StoreShared16(SumsAt(local, column),
                    {__float_as_uint(sums.o[0]), __float_as_uint(sums.o[1]),
                     __float_as_uint(sums.o[2]), __float_as_uint(sums.o[3])});
      if (column == 0) StoreShared8(StateAt(local), sums.top, sums.total);
    }
  }

  // This block's share of the rows, in fours of columns, over all blocks of the cluster.
  __device__ __forceinline__ void Collect(const Spot& unit, int rank, int blocks) const {
    const int head = unit.unit / loader.row_blocks;
    const int first = unit.unit % loader.row_blocks * kRows;
    const int rows = min(kRows, loader.all_rows - first);
    for (int i = rank * kThreads + thread; i < rows * kQuads; i += blocks * kThreads) {
      const int local = i / kQuads, column = i % kQuads * 4;
      Partial<4> sums = {-Infinity(), 0.0f, {}};
#pragma unroll 4
      for (int block = 0; block < blocks; ++block) {
        const float2 state = LoadRemote8(StateAt(local), block);
        const float4 o = LoadRemote16(SumsAt(local, column), block);
        const float of[4] = {o.x, o.y, o.z, o.w};
        if (state.y != 0.0f) sums.Add(state.x, state.y, of);  // else it had no keys
      }
      WriteRow<typename Block::T, 4>(call, unit.sequence, head, first + local, column, sums.o,
                                     sums.top, sums.total);
    }
  }

  __device__ __forceinline__ void Run() {
    const int rank = static_cast<int>(ClusterRank()), blocks = static_cast<int>(ClusterSize());
    if (!this->Told()) WaitForEarlierKernels();
    const int unit = static_cast<int>(blockIdx.x) / blocks, sequence = unit / loader.units;
    const int tiles = TilesOf<Block::kKeys>(SeenBy(call.MaskAt(sequence), call.queries));
    const int begin = static_cast<int>(PartBegin(tiles, blocks, rank));
    const int count = static_cast<int>(PartBegin(tiles, blocks, rank + 1)) - begin;
    const Spot spot = {sequence, unit % loader.units, begin, tiles};
    if (thread < kRows) StoreShared8(StateAt(thread), -Infinity(), 0.0f);
    this->Start(spot, count);
    if (count > 0) this->Walk(count, [&](int stage, float factor) { Leave(stage, factor); });
    ClusterBarrier();
    Collect(spot, rank, blocks);
    ClusterBarrier();  // nobody's memory goes before all have read it
  }
};

}  // namespace attention
