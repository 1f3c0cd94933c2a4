// Attention of few queries on many keys: what bounds it is how fast keys and values are read.
//
// A block takes an equal share of all tiles of keys (decode_split.h). The rows that share a key
// head, its query heads times the queries, are packed into tiles of 16 rows for the tensor cores.
// A warp has some rows and some keys of each tile; at the end of a segment the warps' outputs are
// added up in shared memory, where the last tile was. Some tiles of keys and values are on their
// way while one is used (decode_load.cuh), over the borders of units: nothing is waited for but
// what is computed next.
//
// A block may begin before the kernels in front have ended. What they may write, lengths, pages and
// tensors, it reads after them; a place that follows from arguments alone it finds, and asks for
// the first tiles to come into the L2 cache, while it waits.
#pragma once

#include "decode_load.cuh"
#include "score.cuh"

namespace attention {

// kBlocksAtOnce: of one multiprocessor.
template <typename Q, typename Cached, int kHeadColumns, int kRowWarpCount, int kTileKeys,
          int kStageCount, bool kWithoutMod, bool kPagedKeys, int kBlocksAtOnce>
struct Decode {
  using Shape =
      DecodeShape<Q, Cached, kHeadColumns, kRowWarpCount, kTileKeys, kStageCount, kPagedKeys>;
  static constexpr int kBlocks = kBlocksAtOnce, kMod = kWithoutMod ? 0 : kAnyMod;
  static constexpr int kHead = Shape::kHead, kKeys = Shape::kKeys, kStages = Shape::kStages;
  static constexpr int kRows = Shape::kRows, kOwn = Shape::kOwn, kRowWarps = Shape::kRowWarps;
  static constexpr int kBytes = Shape::kBytes, kThreads = Shape::kThreads;
  static constexpr bool kPlain = IsIdentity<kMod>(), kEight = Shape::kEight;
  using T = typename Shape::T;
  using C = typename Shape::C;
  using M = typename Shape::M;
  using TileQ = typename Shape::TileQ;
  using TileK = typename Shape::TileK;

  const DecodeCall& call;
  DecodeLoader<Shape> loader;
  typename Shape::Small& small;
  const int thread, warp, lane, row_warp, key_warp;
  float scale;
  Cursor now;
  float sum[2], largest[2];
  float out[1][kHead / 8][4];

  __device__ __forceinline__ Decode(const DecodeCall& given, unsigned char* shared)
      : call(given),
        loader(given, shared),
        small(loader.small),
        thread(threadIdx.x),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        row_warp(warp % kRowWarps),
        key_warp(warp / kRowWarps),
        scale(given.scale) {}

  // Row r of a key head is query r / group of query head r % group.
  __device__ __forceinline__ int RowOf(int half) const {
    return loader.FirstRow(now) + row_warp * 16 + lane / 4 + half * 8;
  }
  __device__ __forceinline__ int KeyOf(int n, int i) const {
    return now.tile * kKeys + key_warp * kOwn + n * 8 + (lane & 3) * 2 + (i & 1);
  }

  // ---- a tile ----

  __device__ __forceinline__ void Modify(float (&s)[1][kOwn / 8][4]) const {
    if constexpr (kEight) {
      const float* factors = small.factor[loader.RingOf(now)] + row_warp * 16 + lane / 4;
#pragma unroll
      for (int n = 0; n < kOwn / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[0][n][i] *= factors[i / 2 * 8];
    }
    if constexpr (kPlain) {
      if (scale < 0)
#pragma unroll
        for (int n = 0; n < kOwn / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) s[0][n][i] = -s[0][n][i];
    } else {
      const int group = loader.group, first = now.head * group;
      WithMod<kMod>(call.mod, [&](auto modifier) {
#pragma unroll
        for (int n = 0; n < kOwn / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = min(RowOf(i / 2), loader.all_rows - 1);
            s[0][n][i] = modifier.Apply(s[0][n][i] * scale, now.b, first + row % group, row / group,
                                        KeyOf(n, i), call.score);
          }
      });
    }
  }

  // Whether all of this warp's keys lie in pages of the pool, which is so for all lanes alike.
  __device__ __forceinline__ bool AllKnown(int slot) const {
    unsigned all = 0x01010101;
    if constexpr (Shape::kPaged) {
#pragma unroll
      for (int i = 0; i < kOwn; i += 4)
        all &= *reinterpret_cast<const unsigned*>(small.known[slot] + key_warp * kOwn + i);
    }
    return all == 0x01010101;
  }

  __device__ __forceinline__ void Hide(float (&s)[1][kOwn / 8][4], int slot) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Range seen = now.mask.KeysOf(RowOf(half) / loader.group);
#pragma unroll
      for (int n = 0; n < kOwn / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = KeyOf(n, i);
          bool sees = key >= seen.begin && key < seen.end;
          if constexpr (Shape::kPaged) sees = sees && small.known[slot][key - now.tile * kKeys];
          if (!sees) s[0][n][half * 2 + i] = -Infinity();
        }
    }
  }

  // The scores become probabilities over 2^largest; sums and outputs follow the new maxima.
  __device__ __forceinline__ void Normalize(float (&s)[1][kOwn / 8][4], float factor) {
    float correction[2];
    bool moved = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = largest[half];
#pragma unroll
      for (int n = 0; n < kOwn / 8; ++n)
        x = fmaxf(x, fmaxf(s[0][n][half * 2], s[0][n][half * 2 + 1]));
      x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
      x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
      moved |= x != largest[half];
      const float top = x == -Infinity() ? 0.0f : x;
      correction[half] = Exp2((largest[half] - top) * factor);
      largest[half] = x;
      float total = 0.0f;
#pragma unroll
      for (int n = 0; n < kOwn / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float y = s[0][n][half * 2 + i];
          const float p = Exp2(kPlain ? fmaf(y, factor, -top * factor) : (y - top) * factor);
          s[0][n][half * 2 + i] = p;
          total += p;
        }
      sum[half] = sum[half] * correction[half] + total;
    }
    if (__any_sync(kAllLanes, moved))  // mostly not: maxima settle within a few tiles
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[0][n][i] *= correction[i / 2];
  }

  __device__ __forceinline__ void Attend(int slot, float factor) {
    const unsigned stage = loader.StageOf(slot);
    float s[1][kOwn / 8][4];
    Clear(s);
    const unsigned queries = TileQ::RowsFirst(loader.QueriesOf(now), row_warp * 16, lane);
    const unsigned keys = TileK::ChunksFirst(stage, key_warp * kOwn, lane);
    if constexpr (kEight) {
      MultiplyRows8<TileQ, TileK, kHead / 32>(s[0], queries, keys);
    } else {
      MultiplyRows<T, TileQ, TileK, kHead / 16>(s, queries, keys);
    }
    Modify(s);
    if (!AllKnown(slot) || !now.mask.Whole(0, call.queries, now.tile * kKeys, kKeys)) Hide(s, slot);
    Normalize(s, factor);
    const unsigned values = TileK::RowsFirst(stage + kBytes, key_warp * kOwn, lane);
#pragma unroll
    for (int k = 0; k < kOwn / 16; ++k) {
      unsigned p[1][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[0][i] =
            Element<M>::Pack(s[0][2 * k + i / 2][i % 2 * 2], s[0][2 * k + i / 2][i % 2 * 2 + 1]);
      if constexpr (kEight) {
        MultiplyDown8<TileK>(out[0], p[0], values + k * 16 * TileK::kRowBytes);
      } else {
        MultiplyDown<T, TileK>(out, p, values + k * 16 * TileK::kRowBytes);
      }
    }
  }

  // ---- the end of a segment ----

  __device__ __forceinline__ void Begin() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = 0.0f;
      largest[half] = -Infinity();
    }
    Clear(out);
  }

  // Two floats of a warp's row; pairs change places so that rows lie in different banks.
  __device__ __forceinline__ static unsigned PairAt(int of_warp, int row, int pair) {
    return ((of_warp * 16 + row) * kHead + (pair ^ (row & 3) << 2) * 2) * 4;
  }

  // Every warp's rows, as far as there are some, to where tile `slot` was.
  __device__ __forceinline__ void Gather(int slot, float factor, int rows) {
    __syncthreads();  // all warps are done with the tile
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row_warp * 16 + half * 8 >= rows) break;  // all lanes alike
      float total = sum[half];
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      const int row = lane / 4 + half * 8;
      if ((lane & 3) == 0) small.row[warp][row] = {largest[half] * factor, total};
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        // Of e4m3 two neighbours hold the even and the odd columns of 16.
        const int pair = kEight ? n / 2 * 8 + (lane & 3) * 2 + n % 2 : n * 4 + (lane & 3);
        const int first = kEight ? n / 2 * 2 : n, second = kEight ? first + 1 : n;
        const int i = half * 2 + (kEight ? n % 2 : 0), j = kEight ? i : i + 1;
        StoreShared8(loader.StageOf(slot) + PairAt(warp, row, pair), out[0][first][i],
                     out[0][second][j]);
      }
    }
    __syncthreads();
  }

  // Four columns of a row, over the warps that share its keys, from where Gather left them.
  __device__ __forceinline__ Partial<4> OverWarps(int stage, int local, int column) const {
    const int first = local / 16, row = local % 16;
    Partial<4> sums = {-Infinity(), 0.0f, {}};
#pragma unroll
    for (int w = 0; w < Shape::kKeyWarps; ++w)
      sums.top = fmaxf(sums.top, small.row[w * kRowWarps + first][row].x);
#pragma unroll
    for (int w = 0; w < Shape::kKeyWarps; ++w) {
      const int of = w * kRowWarps + first;
      const float2 state = small.row[of][row];
      const float weight = state.x == -Infinity() ? 0.0f : Exp2(state.x - sums.top);
      const uint4 word = LoadShared16(loader.StageOf(stage) + PairAt(of, row, column / 2));
      sums.total += weight * state.y;
      sums.o[0] += weight * __uint_as_float(word.x);
      sums.o[1] += weight * __uint_as_float(word.y);
      sums.o[2] += weight * __uint_as_float(word.z);
      sums.o[3] += weight * __uint_as_float(word.w);
    }
    return sums;
  }

  __device__ __forceinline__ int RowsNow() const {
    return min(kRows, loader.all_rows - loader.FirstRow(now));
  }

  // Writes a segment: results where it is a whole unit, else partial result `slot` of this part.
  __device__ __forceinline__ void Finish(int stage, float factor, bool whole, int slot) {
    const int rows = RowsNow();
    Gather(stage, factor, rows);
    for (int i = thread; i < rows * (kHead / 4); i += kThreads) {
      const int local = i / (kHead / 4), column = i % (kHead / 4) * 4;
      const Partial<4> sums = OverWarps(stage, local, column);
      if (whole) {
        WriteRow<T, 4>(call, now.b, now.head, loader.FirstRow(now) + local, column, sums.o,
                       sums.top, sums.total);
      } else {
        const int64 at = (static_cast<int64>(blockIdx.x) * 2 + slot) * call.rows + local;
        *reinterpret_cast<float4*>(call.partial + at * kHead + column) = {sums.o[0], sums.o[1],
                                                                          sums.o[2], sums.o[3]};
        if (column == 0) *reinterpret_cast<float2*>(call.sums + at * 2) = {sums.top, sums.total};
      }
    }
  }

  // ---- a part ----

  // Before anything that earlier kernels may write is read: all places, by arguments.
  __device__ __forceinline__ bool Told() const { return !Shape::kPaged && !call.Varies(); }

  // From the first of `count` tiles on, at `spot`, until they may be read.
  __device__ __forceinline__ void Start(const Spot& spot, Tiles count) {
    if (count > 0) now = loader.Start(spot);
    if (Told()) {
      loader.Prefetch(count);
      WaitForEarlierKernels();
    }
    LetNextKernelStart();  // behind the wait: it reads lengths at once
  }

  // All `count` tiles; end(stage, factor): where a unit ends, and the last one.
  template <typename End>
  __device__ __forceinline__ void Walk(Tiles count, const End& end) {
    if (call.k_scale != nullptr) scale *= *call.k_scale;
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) {
      if (i < count) loader.Load(i, i + 1 < count);
      CommitCopies();
    }
    const float factor = kPlain ? fmaxf(fabsf(scale) * kLog2e, 1e-30f) : kLog2e;
    int slot = 0;
    Begin();
    for (Tiles i = 0; i < count; ++i) {
      WaitCopiesBut<kStages - 2>();
      __syncthreads();
      const int free = slot == 0 ? kStages - 1 : slot - 1;
      if (i + kStages - 1 < count) loader.Load(free, i + kStages < count);
      CommitCopies();
      Attend(slot, factor);
      if (now.tile + 1 == now.end || i + 1 == count) {
        end(slot, factor);
        Begin();
      }
      loader.Advance(now);
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
  }

  __device__ __forceinline__ void Run() {
    const int part = blockIdx.x;
    if (!Told()) WaitForEarlierKernels();
    const Place place = FindPlace<kThreads, kKeys>(call, part, loader.units);
    const Tiles begin = PartBegin(place.total, call.parts, part);
    const Tiles count = PartBegin(place.total, call.parts, part + 1) - begin;
    Start(place.spot, count);
    if (count == 0) return;
    bool begins = place.spot.tile == 0;  // this segment its unit
    Walk(count, [&](int stage, float factor) {
      Finish(stage, factor, begins && now.tile + 1 == now.end, SlotOf(begins));
      begins = true;
    });
  }
};

}  // namespace attention
