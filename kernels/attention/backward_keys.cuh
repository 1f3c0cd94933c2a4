// The gradients of k and v, and with them that of q.
//
// A block of threads takes kKeys keys of one head and walks over the queries that see any of them,
// of every head that shares the keys. Its eight warps divide each product anew:
//
//   s = q k^T, dp = dout v^T    2 x 4 warps over queries x keys
//   dv += p^T dout, dk += ds^T q    4 x 2 warps over keys x columns, kept in registers
//   dq = ds k                   over queries x columns; added to floats in global memory
//
// p and ds pass through shared memory, since the warp that computes an element is not the one that
// needs it. Several blocks add to the same dq: their order is not fixed, nor is the rounding. The
// deterministic op leaves dq to a kernel of its own, backward_queries.cuh.
#pragma once

#include "gradient.cuh"
#include "small_tiles.cuh"

namespace attention {

// Some queries of some head.
struct Turn {
  int h, block;
};

template <typename T, int kHead, int kHeadV, int kMod, bool kExtras, bool kVector>
struct BackwardKeys {
  static constexpr int kWarps = 8, kThreads = kWarps * 32;
  static constexpr int kQueries = 64;
  static constexpr int kKeys = kHead > 128 || kSmallTiles ? 64 : 128;
  static constexpr int kTilesK = kKeys / 64;  // tiles of 16 keys of a warp in dk and dv
  // Warps along the queries in dq: 96 columns are three pairs of tiles for each of two warps.
  static constexpr int kRowWarps = kHead == 96 ? 4 : 2, kColumnWarps = kWarps / kRowWarps;
  static constexpr int kTilesQ = kQueries / 16 / kRowWarps;

  using TileQ = Tile<kHead>;
  using TileV = Tile<kHeadV>;
  using TileS = Tile<kKeys>;
  static constexpr int kBytesK = kKeys * TileQ::kRowBytes, kBytesV = kKeys * TileV::kRowBytes;
  static constexpr int kBytesQ = kQueries * TileQ::kRowBytes;
  static constexpr int kBytesO = kQueries * TileV::kRowBytes;
  static constexpr int kBytesS = kQueries * TileS::kRowBytes;
  static constexpr int kBytesRows = kQueries * 2 * 4;  // stats and delta
  static constexpr int kStage = kBytesQ + kBytesO + kBytesRows;
  // With three stages and two tiles of scores, those of the next queries are computed between the
  // same barriers as the sums over the present ones. Wide heads leave no room for that.
  static constexpr bool kAhead = kHead <= 128;
  static constexpr int kStages = kAhead ? 3 : 2;
  static constexpr int kAtStages = kBytesK + kBytesV;
  static constexpr int kAtP = kAtStages + kStages * kStage, kAtS = kAtP + kBytesS;
  static constexpr int kShared = kAtP + (kAhead ? 4 : 2) * kBytesS;

  Gradient<T, kMod, kExtras> gradient;
  Source q, dout;  // of the head in turn
  const float* stats;
  const float* delta;
  float* dq;  // null when it is not wanted
  int first_key, thread, warp, lane;
  unsigned shared;

  float dk[kTilesK][kHead / 16][4], dv[kTilesK][kHeadV / 16][4];

  // Causal: all heads' first keys first, which most queries see.
  __device__ static __forceinline__ BlockPlace PlaceOf(const Params& p) {
    return PlaceAmong((p.keys + kKeys - 1) / kKeys, p.mask != kMaskNone);
  }

  // Of block number `block` of keys, of a head of a batch whose mask this is.
  __device__ __forceinline__ BackwardKeys(const Params& params, const Mask& mask, int batch,
                                          int block, unsigned char* block_shared)
      : gradient(params, mask, batch),
        first_key(block * kKeys),
        thread(threadIdx.x),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        shared(SharedAddress(block_shared)) {}

  __device__ __forceinline__ void LoadQueries(unsigned stage, int first) const {
    LoadTile<kQueries, kHead, kThreads, kVector>(stage, q, first, thread);
    LoadTile<kQueries, kHeadV, kThreads, kVector>(stage + kBytesQ, dout, first, thread);
    const int row = first + thread % kQueries;
    if (thread < 2 * kQueries)
      CopyAsync4(stage + kBytesQ + kBytesO + thread * 4,
                 (thread < kQueries ? stats : delta) + (row < q.rows ? row : 0), row < q.rows);
  }

  // p and ds of the queries in a stage, into the two tiles at `scores`.
  __device__ __forceinline__ void Scores(unsigned stage, int first, unsigned scores) const {
    constexpr int kM = 2, kN = kKeys / 32;
    const int row = warp / 4 * 32, key = warp % 4 * (kKeys / 4);
    float s[kM][kN][4], dp[kM][kN][4];
    Clear(s);
    MultiplyRows<T, TileQ, TileQ, kHead / 16>(s, TileQ::RowsFirst(stage, row, lane),
                                              TileQ::ChunksFirst(shared, key, lane));
    Clear(dp);
    MultiplyRows<T, TileV, TileV, kHeadV / 16>(dp, TileV::RowsFirst(stage + kBytesQ, row, lane),
                                               TileV::ChunksFirst(shared + kBytesK, key, lane));
    float base[kM][2], less[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned at = stage + kBytesQ + kBytesO + (row + lane / 4 + m * 16 + half * 8) * 4;
        base[m][half] = gradient.Base(LoadSharedFloat(at));
        less[m][half] = LoadSharedFloat(at + kQueries * 4);
      }
    gradient.Apply(s, dp, base, less, first + row + lane / 4, first_key + key + (lane & 3) * 2,
                   gradient.mask.Whole(first, kQueries, first_key, kKeys), lane);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const unsigned at = scores +
                              TileS::Chunk(row + lane / 4 + m * 16 + half * 8, key / 8 + n) +
                              (lane & 3) * 4;
          StoreShared4(at, Element<T>::Pack(s[m][n][half * 2], s[m][n][half * 2 + 1]));
          StoreShared4(at + kBytesS, Element<T>::Pack(dp[m][n][half * 2], dp[m][n][half * 2 + 1]));
        }
  }

  // sum += the transposed tile of scores times the rows in `tile`, over the keys and columns of
  // this warp.
  template <typename Layout, int kN>
  __device__ __forceinline__ void AddDown(float (&sum)[kTilesK][kN][4], unsigned scores,
                                          unsigned tile) const {
    const unsigned a = TileS::ChunksFirst(scores, 0, lane);
    const unsigned b = Layout::Group(Layout::RowsFirst(tile, 0, lane), warp % 2);
    unsigned at[kTilesK];
#pragma unroll
    for (int m = 0; m < kTilesK; ++m) at[m] = TileS::Pair(a, warp / 2 * kTilesK + m);
#pragma unroll
    for (int k = 0; k < kQueries / 16; ++k) {
      unsigned fragment[kTilesK][4];
#pragma unroll
      for (int m = 0; m < kTilesK; ++m)
        LoadTransposed(fragment[m], at[m] + k * 16 * TileS::kRowBytes);
      MultiplyDown<T, Layout, 2>(sum, fragment, b + k * 16 * Layout::kRowBytes);
    }
  }

  __device__ __forceinline__ void AddQueries(int first, unsigned ds) const {
    constexpr int kN = kHead / 8 / kColumnWarps;
    const int row = warp / kColumnWarps * kTilesQ * 16, column = warp % kColumnWarps;
    const unsigned a = TileS::RowsFirst(ds, row, lane);
    const unsigned b = TileQ::Group(TileQ::RowsFirst(shared, 0, lane), column);
    float sum[kTilesQ][kN][4];
    Clear(sum);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      unsigned fragment[kTilesQ][4];
#pragma unroll
      for (int m = 0; m < kTilesQ; ++m)
        LoadMatrices(fragment[m], TileS::Pair(a, k) + m * 16 * TileS::kRowBytes);
      MultiplyDown<T, TileQ, kColumnWarps>(sum, fragment, b + k * 16 * TileQ::kRowBytes);
    }
    // A lane and its neighbour hold four columns of two rows: each adds one row.
    const bool odd = lane & 1;
#pragma unroll
    for (int m = 0; m < kTilesQ; ++m) {
      const int r = first + row + lane / 4 + m * 16 + (odd ? 8 : 0);
      float* to = dq + static_cast<int64>(r) * q.columns;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float(&x)[4] = sum[m][n];
        const float a = __shfl_xor_sync(kAllLanes, odd ? x[0] : x[2], 1);
        const float c = __shfl_xor_sync(kAllLanes, odd ? x[1] : x[3], 1);
        const float four[4] = {odd ? a : x[0], odd ? c : x[1], odd ? x[2] : a, odd ? x[3] : c};
        const int at = (n / 2 * kColumnWarps + column) * 16 + n % 2 * 8 + (lane & 2) * 2;
        if (r >= q.rows) continue;
        if constexpr (kVector) {
          if (at < q.columns) AddFour(to + at, four);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (at + i < q.columns) atomicAdd(to + at + i, four[i]);
        }
      }
    }
  }

  // The queries in a stage, whose scores are ready, into all sums.
  __device__ __forceinline__ void Add(unsigned stage, int first, unsigned scores) {
    AddDown<TileV>(dv, scores, stage + kBytesQ);
    AddDown<TileQ>(dk, scores + kBytesS, stage);
    if (dq != nullptr) AddQueries(first, scores + kBytesS);
  }

  // The sums of this warp into a tile, as elements.
  template <typename Layout, int kN>
  __device__ __forceinline__ void Stage(const float (&sum)[kTilesK][kN][4], float factor,
                                        unsigned tile) const {
#pragma unroll
    for (int m = 0; m < kTilesK; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const int row = (warp / 2 * kTilesK + m) * 16 + lane / 4 + half * 8;
          const int chunk = (n / 2 * 2 + warp % 2) * 2 + n % 2;
          StoreShared4(
              tile + Layout::Chunk(row, chunk) + (lane & 3) * 4,
              Element<T>::Pack(sum[m][n][half * 2] * factor, sum[m][n][half * 2 + 1] * factor));
        }
  }

  // All of a block: the queries that see its keys, of `group` heads from first_head on, one part
  // after another. loads(h), scores(h) and sums(h) set what is read of a head, what its scores
  // need, and where its dq is added.
  template <typename Loads, typename ForScores, typename Sums>
  __device__ __forceinline__ void Walk(const Source& k, const Source& v, int first_head, int group,
                                       const Loads& loads, const ForScores& for_scores,
                                       const Sums& sums) {
    Clear(dk);
    Clear(dv);
    const Range seen = gradient.mask.QueriesOfBlock(first_key, kKeys);
    const int first = seen.begin / kQueries, end = (seen.end + kQueries - 1) / kQueries;
    if (seen.begin >= seen.end) return;
    LoadTile<kKeys, kHead, kThreads, kVector>(shared, k, first_key, threadIdx.x);
    LoadTile<kKeys, kHeadV, kThreads, kVector>(shared + kBytesK, v, first_key, threadIdx.x);
    const unsigned stages = shared + kAtStages;
    const int turns = group * (end - first);
    const auto after = [&](Turn t) {
      return t.block + 1 < end ? Turn{t.h, t.block + 1} : Turn{t.h + 1, first};
    };
    const auto stage_of = [&](int i) { return stages + i % kStages * kStage; };
    const auto scores_of = [&](int i) {
      return shared + kAtP + (kAhead ? i % 2 * 2 * kBytesS : 0);
    };
    const auto load = [&](int i, Turn t) {
      if (i >= turns) return;
      loads(t.h);
      LoadQueries(stage_of(i), t.block * kQueries);
    };
    const auto compute = [&](int i, Turn t) {
      if (i >= turns) return;
      for_scores(t.h);
      Scores(stage_of(i), t.block * kQueries, scores_of(i));
    };
    const auto add = [&](int i, Turn t) {
      sums(t.h);
      Add(stage_of(i), t.block * kQueries, scores_of(i));
    };
    Turn at = {first_head, first}, next = after(at);
    load(0, at);
    if constexpr (kAhead) {
      load(1, next);
      WaitCopies();
      __syncthreads();
      compute(0, at);
    }
    for (int i = 0; i < turns; ++i, at = next, next = after(next)) {
      WaitCopies();
      __syncthreads();
      if constexpr (kAhead) {
        load(i + 2, after(next));
        compute(i + 1, next);
      } else {
        load(i + 1, next);
        compute(i, at);
        __syncthreads();
      }
      add(i, at);
    }
  }

  // dk and dv, which are at key 0 of this head, as far as there are keys. threadIdx.x: no register
  // keeps it over the walk.
  __device__ __forceinline__ void Store(unsigned short* to_k, unsigned short* to_v, int keys) {
    const Params& params = gradient.params;
    __syncthreads();
    Stage<TileQ>(dk, params.scale, shared);
    Stage<TileV>(dv, 1.0f, shared + kBytesK);
    __syncthreads();
    StoreTile<kKeys, kHead, kThreads, kVector>(to_k, params.k_strides.token, keys, params.head,
                                               shared, first_key, threadIdx.x);
    StoreTile<kKeys, kHeadV, kThreads, kVector>(to_v, params.v_strides.token, keys, params.head_v,
                                                shared + kBytesK, first_key, threadIdx.x);
  }
};

}  // namespace attention
