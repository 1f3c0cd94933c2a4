// The gradient of q alone, always summed in the same order: what the deterministic op uses.
//
// As in the forward pass a block of threads takes some queries and walks over the keys they see; a
// warp has 16 queries, whose ds stay in its registers and become the left operand of dq += ds k.
#pragma once

#include "gradient.cuh"

namespace attention {

template <typename T, int kHead, int kHeadV, int kMod, bool kExtras, bool kVector>
struct BackwardQueries {
  static constexpr int kWarps = 4, kThreads = kWarps * 32;
  static constexpr int kBlocks = kHead > 128 ? 1 : 2;  // on one multiprocessor
  static constexpr int kQueries = kWarps * 16, kKeys = kHead > 128 ? 32 : 64;

  using TileQ = Tile<kHead>;
  using TileV = Tile<kHeadV>;
  static constexpr int kBytesQ = kQueries * TileQ::kRowBytes;
  static constexpr int kBytesO = kQueries * TileV::kRowBytes;
  static constexpr int kBytesK = kKeys * TileQ::kRowBytes;
  static constexpr int kStage = kBytesK + kKeys * TileV::kRowBytes;
  static constexpr int kShared = kBytesQ + kBytesO + 2 * kStage;

  Gradient<T, kMod, kExtras> gradient;
  Source q, k, v, dout;
  int first_query, thread, warp, lane;
  unsigned shared;
  float base[1][2], less[1][2];  // stats and delta of this lane's rows
  float dq[1][kHead / 8][4];

  __device__ static __forceinline__ BlockPlace PlaceOf(const Params& p) {
    return PlaceAmong((p.queries + kQueries - 1) / kQueries, false);
  }

  // Of block number `block` of queries, of a head of a batch whose mask this is.
  __device__ __forceinline__ BackwardQueries(const Params& params, const Mask& mask, int batch,
                                             int head, int block, unsigned char* block_shared)
      : gradient(params, mask, batch),
        first_query(block * kQueries),
        thread(threadIdx.x),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        shared(SharedAddress(block_shared)) {
    gradient.AtHead(head, nullptr);  // BackwardKeys adds up the gradient of the bias
  }

  __device__ __forceinline__ int Row() const { return first_query + warp * 16 + lane / 4; }

  __device__ __forceinline__ unsigned StageOf(int block) const {
    return shared + kBytesQ + kBytesO + (block & 1) * kStage;
  }

  __device__ __forceinline__ void LoadKeys(int block) const {
    const unsigned stage = StageOf(block);
    LoadTile<kKeys, kHead, kThreads, kVector>(stage, k, block * kKeys, thread);
    LoadTile<kKeys, kHeadV, kThreads, kVector>(stage + kBytesK, v, block * kKeys, thread);
  }

  __device__ __forceinline__ void Add(int block) {
    const unsigned stage = StageOf(block);
    float s[1][kKeys / 8][4], dp[1][kKeys / 8][4];
    Clear(s);
    MultiplyRows<T, TileQ, TileQ, kHead / 16>(s, TileQ::RowsFirst(shared, warp * 16, lane),
                                              TileQ::ChunksFirst(stage, 0, lane));
    Clear(dp);
    MultiplyRows<T, TileV, TileV, kHeadV / 16>(dp,
                                               TileV::RowsFirst(shared + kBytesQ, warp * 16, lane),
                                               TileV::ChunksFirst(stage + kBytesK, 0, lane));
    gradient.Apply(s, dp, base, less, Row(), block * kKeys + (lane & 3) * 2,
                   gradient.mask.Whole(first_query, kQueries, block * kKeys, kKeys), lane);
    const unsigned rows = TileQ::RowsFirst(stage, 0, lane);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      unsigned ds[1][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ds[0][i] = Element<T>::Pack(dp[0][2 * step + i / 2][i % 2 * 2],
                                    dp[0][2 * step + i / 2][i % 2 * 2 + 1]);
      MultiplyDown<T, TileQ>(dq, ds, rows + step * 16 * TileQ::kRowBytes);
    }
  }

  __device__ __forceinline__ void Run(int first_block, int end_block) {
    Clear(dq);
    if (first_block >= end_block) return;
    LoadTile<kQueries, kHead, kThreads, kVector>(shared, q, first_query, thread);
    LoadTile<kQueries, kHeadV, kThreads, kVector>(shared + kBytesQ, dout, first_query, thread);
    LoadKeys(first_block);
    for (int block = first_block; block < end_block; ++block) {
      WaitCopies();
      __syncthreads();
      if (block + 1 < end_block) LoadKeys(block + 1);
      Add(block);
    }
    __syncthreads();  // the queries' place is used anew
  }

  __device__ __forceinline__ void Store(unsigned short* to, int queries) const {
    const Params& params = gradient.params;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n)
        StoreShared4(shared + TileQ::Chunk(warp * 16 + lane / 4 + half * 8, n) + (lane & 3) * 4,
                     Element<T>::Pack(dq[0][n][half * 2] * params.scale,
                                      dq[0][n][half * 2 + 1] * params.scale));
    __syncthreads();
    StoreTile<kQueries, kHead, kThreads, kVector>(to, params.q_strides.token, queries, params.head,
                                                  shared, first_query, thread);
  }

  // All of a block, whose tensors are set. stats and delta, and where dq goes, are at this head's
  // query 0.
  __device__ __forceinline__ void Differentiate(unsigned short* to, const float* stats,
                                                const float* delta, int queries) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Row() + half * 8;
      base[0][half] = gradient.Base(row < queries ? stats[row] : -Infinity());
      less[0][half] = row < queries ? delta[row] : 0.0f;
    }
    const Range seen = gradient.mask.KeysOfBlock(first_query, kQueries);
    const int end = (seen.end + kKeys - 1) / kKeys;
    Run(seen.begin / kKeys, seen.begin < seen.end ? end : 0);
    Store(to, queries);
  }
};

}  // namespace attention
