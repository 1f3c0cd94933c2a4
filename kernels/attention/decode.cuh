// Attention of few queries on many keys: what bounds it is how fast keys and values are read.
//
// A block takes an equal share of all tiles of keys (decode_split.h). The rows that share a key
// head, its query heads times the queries, are packed into tiles of 16 rows for the tensor cores.
// Of four warps kRowWarps have rows of their own, and what is left divides the keys of a tile; at
// the end of a segment their outputs are added up in shared memory, where the last tile was.
// kStages tiles of keys and values are on their way or in use at a time, over the borders of units:
// nothing is waited for but what is computed next.
#pragma once

#include "decode_block.cuh"
#include "decode_fp8.cuh"
#include "score.cuh"
#include "tile.cuh"

namespace attention {

template <typename T, typename C, int kHead, int kRowWarps, int kKeys, int kStages, int kMod,
          bool kPaged>
struct Decode {
  static constexpr int kWarps = 4, kThreads = kWarps * 32;
  static constexpr int kKeyWarps = kWarps / kRowWarps;
  static constexpr int kRows = kRowWarps * 16;
  static constexpr int kOwn = kKeys / kKeyWarps;  // keys of a tile that a warp takes
  static constexpr bool kPlain = IsIdentity<kMod>();
  static constexpr bool kEight = sizeof(C) == 1;

  using M = typename Multiplied<T, C>::Type;
  using TileQ = Tile<kHead>;
  using TileK = Tile<kHead * sizeof(C) / 2>;  // in units of 16 bits
  static constexpr int kSegment = TileK::kSegment;
  static constexpr int kStep = kThreads / kSegment, kPasses = kKeys / kStep;
  static constexpr int kBytes = kKeys * TileK::kRowBytes;  // of keys, and of values
  static constexpr int kBytesQ = kRows * TileQ::kRowBytes;
  static_assert(kOwn % 16 == 0 && kHead % 64 == 0 && kStages >= 2);
  static_assert(kWarps * 16 * kHead * 4 <= 2 * kBytes, "outputs are added up where a tile was");

  struct Small {
    float2 row[kWarps][16];  // the largest score, in powers of two, and the sum over it
    float factor[kEight ? kStages : 1][kEight ? kRows : 2];  // by which rows of q were divided
    // Whether the page of a key is one of the pool.
    unsigned char known[kPaged ? kStages : 1][kPaged ? kKeys : 8];
  };
  static constexpr int kShared = kStages * (2 * kBytes + kBytesQ) + sizeof(Small);

  // A tile of a unit, on the way through a part.
  struct Cursor {
    int b, unit, tile, end;  // tiles count from key 0
    unsigned number;         // of units since the part began
    bool fresh;              // the first of its unit in this part
    Mask mask;
    Range seen;
  };

  const DecodeCall<T, C>& call;
  const int thread, warp, lane, row_warp, key_warp, units, row_blocks;
  const unsigned shared;
  const float scale;
  Small& small;
  Cursor now, ahead;
  int found[kPasses];  // rows of k and v of the tile `ahead`, -1 of none
  float sum[2], largest[2];
  float out[1][kHead / 8][4];

  __device__ __forceinline__ Decode(const DecodeCall<T, C>& given, unsigned char* block_shared)
      : call(given),
        thread(threadIdx.x),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        row_warp(warp % kRowWarps),
        key_warp(warp / kRowWarps),
        units(given.kv_heads * ((given.AllRows() + kRows - 1) / kRows)),
        row_blocks((given.AllRows() + kRows - 1) / kRows),
        shared(SharedAddress(block_shared)),
        scale(given.k_scale == nullptr ? given.scale : given.scale * *given.k_scale),
        small(*reinterpret_cast<Small*>(block_shared + kStages * (2 * kBytes + kBytesQ))) {}

  __device__ __forceinline__ unsigned StageOf(int slot) const { return shared + slot * 2 * kBytes; }
  __device__ __forceinline__ unsigned QueriesOf(const Cursor& at) const {
    return shared + kStages * 2 * kBytes + at.number % kStages * kBytesQ;
  }
  __device__ __forceinline__ int HeadOf(const Cursor& at) const { return at.unit / row_blocks; }
  __device__ __forceinline__ int FirstRow(const Cursor& at) const {
    return at.unit % row_blocks * kRows;
  }
  // Row r of a key head is query r / group of query head r % group.
  __device__ __forceinline__ int RowOf(int half) const {
    return FirstRow(now) + row_warp * 16 + lane / 4 + half * 8;
  }
  __device__ __forceinline__ int KeyOf(int n, int i) const {
    return now.tile * kKeys + key_warp * kOwn + n * 8 + (lane & 3) * 2 + (i & 1);
  }

  // ---- the way through a part ----

  __device__ __forceinline__ void Enter(Cursor& at) const {
    at.mask = call.MaskAt(at.b);
    at.seen = SeenBy(at.mask, call.queries);
    at.tile = at.seen.begin / kKeys;
    at.end = at.tile + TilesOf<kKeys>(at.seen);
  }

  __device__ __forceinline__ void Advance(Cursor& at) const {
    at.fresh = ++at.tile == at.end;
    if (!at.fresh) return;
    ++at.number;
    at.tile = at.seen.begin / kKeys;
    if (++at.unit < units) return;
    at.unit = 0;
    if (++at.b < call.batches) Enter(at);
  }

  // ---- memory ----

  __device__ __forceinline__ void FindRows() {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int key = ahead.tile * kKeys + thread / kSegment + pass * kStep;
      int row = -1;
      if (key >= ahead.seen.begin && key < ahead.seen.end) {
        row = key;
        if constexpr (kPaged) {
          const int page =
              call.pages[static_cast<int64>(ahead.b) * call.table + (key >> call.page_log2)];
          const bool known = static_cast<unsigned>(page) < static_cast<unsigned>(call.page_count);
          const int inside = key & ((1 << call.page_log2) - 1);
          row = known ? (page << call.page_log2) + inside : -1;
        }
      }
      found[pass] = row;
    }
  }

  // Where a chunk of 16 bytes of a row of `ahead` is; null past its rows and columns.
  __device__ __forceinline__ const T* QueryAt(int row, int chunk) const {
    if (row >= call.AllRows() || chunk * 8 >= call.head) return nullptr;
    const int group = call.Group();
    return call.q + ahead.b * call.q_batch + row / group * call.q_token +
           (HeadOf(ahead) * group + row % group) * call.q_head + chunk * 8;
  }

  __device__ __forceinline__ void LoadQueries() {
    for (int i = thread; i < kRows * kHead / 8; i += kThreads) {
      const int local = i / (kHead / 8), chunk = i % (kHead / 8);
      const T* from = QueryAt(FirstRow(ahead) + local, chunk);
      if constexpr (kEight) {
        const float factor = StoreHalves<T, kHead>(QueriesOf(ahead), local, chunk, from);
        if (chunk == 0) small.factor[ahead.number % kStages][local] = factor;
      } else {
        CopyAsync16(QueriesOf(ahead) + TileQ::Chunk(local, chunk), from == nullptr ? call.q : from,
                    from != nullptr);
      }
    }
  }

  __device__ __forceinline__ void LoadRows(unsigned tile, const C* from, int64 token,
                                           int columns) const {
    constexpr int kElements = 16 / sizeof(C);  // of a chunk
    const int row = thread / kSegment, chunk = thread % kSegment;
    const unsigned to = tile + TileK::Offset(row, chunk);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const C* start = from + (found[pass] < 0 ? 0 : found[pass]) * token + chunk * kElements;
#pragma unroll
      for (int s = 0; s < TileK::kRowBytes / 16 / kSegment; ++s) {
        const int column = s * kSegment * kElements;
        const bool inside = found[pass] >= 0 && chunk * kElements + column < columns;
        CopyAsync16(to + pass * kStep * TileK::kRowBytes + s * kSegment * 16,
                    inside ? start + column : from, inside);
      }
    }
  }

  // Starts the copies of the tile `ahead` and goes on to the next one. `more`: there is one.
  __device__ __forceinline__ void Load(int slot, bool more) {
    if (ahead.fresh) LoadQueries();
    const int64 b = ahead.b;
    const int kv = HeadOf(ahead);
    LoadRows(StageOf(slot), call.k + b * call.k_batch + kv * call.k_head, call.k_token, call.head);
    LoadRows(StageOf(slot) + kBytes, call.v + b * call.v_batch + kv * call.v_head, call.v_token,
             call.head_v);
    if constexpr (kPaged) {
      if (thread % kSegment == 0)
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
          small.known[slot][thread / kSegment + pass * kStep] = found[pass] >= 0;
    }
    if (!more) return;
    Advance(ahead);
    FindRows();
  }

  // ---- a tile ----

  __device__ __forceinline__ void Modify(float (&s)[1][kOwn / 8][4]) const {
    if constexpr (kEight) {
      const float* factors = small.factor[now.number % kStages] + row_warp * 16 + lane / 4;
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
      const int group = call.Group(), first = HeadOf(now) * group;
      WithMod<kMod>(call.mod, [&](auto modifier) {
#pragma unroll
        for (int n = 0; n < kOwn / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = min(RowOf(i / 2), call.AllRows() - 1);
            s[0][n][i] = modifier.Apply(s[0][n][i] * scale, now.b, first + row % group, row / group,
                                        KeyOf(n, i), call.score);
          }
      });
    }
  }

  __device__ __forceinline__ void Hide(float (&s)[1][kOwn / 8][4], int slot) const {
    const int group = call.Group();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Range seen = now.mask.KeysOf(RowOf(half) / group);
#pragma unroll
      for (int n = 0; n < kOwn / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = KeyOf(n, i);
          bool sees = key >= seen.begin && key < seen.end;
          if constexpr (kPaged) sees = sees && small.known[slot][key - now.tile * kKeys];
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
    const unsigned stage = StageOf(slot);
    float s[1][kOwn / 8][4];
    Clear(s);
    const unsigned queries = TileQ::RowsFirst(QueriesOf(now), row_warp * 16, lane);
    const unsigned keys = TileK::ChunksFirst(stage, key_warp * kOwn, lane);
    if constexpr (kEight) {
      MultiplyRows8<TileQ, TileK, kHead / 32>(s[0], queries, keys);
    } else {
      MultiplyRows<T, TileQ, TileK, kHead / 16>(s, queries, keys);
    }
    Modify(s);
    if (kPaged || !now.mask.Whole(0, call.queries, now.tile * kKeys, kKeys)) Hide(s, slot);
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

  // Every warp's rows to where tile `slot` was.
  __device__ __forceinline__ void Gather(int slot, float factor) {
    __syncthreads();  // all warps are done with the tile
#pragma unroll
    for (int half = 0; half < 2; ++half) {
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
        StoreShared8(StageOf(slot) + PairAt(warp, row, pair), out[0][first][i], out[0][second][j]);
      }
    }
    __syncthreads();
  }

  // Writes a segment: results where it is a whole unit, else partial result `slot` of this part.
  __device__ __forceinline__ void Finish(int stage, float factor, bool whole, int slot) {
    Gather(stage, factor);
    const int rows = min(kRows, call.AllRows() - FirstRow(now));
    for (int i = thread; i < rows * (kHead / 4); i += kThreads) {
      const int local = i / (kHead / 4), column = i % (kHead / 4) * 4;
      const int first = local / 16, row = local % 16;
      float top = -Infinity(), total = 0.0f;
#pragma unroll
      for (int w = 0; w < kKeyWarps; ++w) top = fmaxf(top, small.row[w * kRowWarps + first][row].x);
      float o[4] = {};
#pragma unroll
      for (int w = 0; w < kKeyWarps; ++w) {
        const int of = w * kRowWarps + first;
        const float2 state = small.row[of][row];
        const float weight = state.x == -Infinity() ? 0.0f : Exp2(state.x - top);
        const uint4 word = LoadShared16(StageOf(stage) + PairAt(of, row, column / 2));
        total += weight * state.y;
        o[0] += weight * __uint_as_float(word.x);
        o[1] += weight * __uint_as_float(word.y);
        o[2] += weight * __uint_as_float(word.z);
        o[3] += weight * __uint_as_float(word.w);
      }
      if (whole) {
        WriteRow<4>(call, now.b, HeadOf(now), FirstRow(now) + local, column, o, top, total);
      } else {
        const int64 at = (static_cast<int64>(blockIdx.x) * 2 + slot) * call.rows + local;
        *reinterpret_cast<float4*>(call.partial + at * kHead + column) = {o[0], o[1], o[2], o[3]};
        if (column == 0) *reinterpret_cast<float2*>(call.sums + at * 2) = {top, total};
      }
    }
  }

  __device__ __forceinline__ void Run() {
    const int part = blockIdx.x;
    const Place place = FindPlace<kThreads, kKeys>(call, part, units);
    const Tiles begin = PartBegin(place.total, call.parts, part);
    const int count = static_cast<int>(PartBegin(place.total, call.parts, part + 1) - begin);
    LetNextKernelStart();
    if (count == 0) return;
    now.b = place.spot.sequence;
    now.unit = place.spot.unit;
    now.number = 0;
    now.fresh = true;
    Enter(now);
    now.tile += place.spot.tile;
    ahead = now;
    FindRows();
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      if (i < count) Load(i, i + 1 < count);
      CommitCopies();
    }
    const float factor = kPlain ? fmaxf(fabsf(scale) * kLog2e, 1e-30f) : kLog2e;
    bool begins = place.spot.tile == 0;  // this segment its unit
    Begin();
    for (int i = 0, slot = 0; i < count; ++i, slot = slot + 1 == kStages ? 0 : slot + 1) {
      WaitCopiesBut<kStages - 2>();
      __syncthreads();
      if (i + kStages - 1 < count) Load(slot == 0 ? kStages - 1 : slot - 1, i + kStages < count);
      CommitCopies();
      Attend(slot, factor);
      const bool ends = now.tile + 1 == now.end;
      if (ends || i + 1 == count) {
        Finish(slot, factor, begins && ends, SlotOf(begins));
        Begin();
        begins = true;
      }
      Advance(now);
    }
  }
};

}  // namespace attention
