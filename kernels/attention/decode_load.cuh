// Keys, values and queries on their way into shared memory: where a block is in its part, and the
// copies of the tile that is next.
//
// Shared memory has kStages stages, each a tile of keys and one of values, then the queries of as
// many units, then Small. What a stage holds is used kStages - 1 tiles after it was asked for.
#pragma once

#include "decode_block.cuh"
#include "decode_fp8.cuh"
#include "tile.cuh"

namespace attention {

// An instance's sizes. Of four warps kRowWarps have rows of their own, and what is left divides the
// keys of a tile.
template <typename Q, typename Cached, int kHeadColumns, int kRowWarpCount, int kTileKeys,
          int kStageCount, bool kPagedKeys>
struct DecodeShape {
  using T = Q;
  using C = Cached;
  using M = typename Multiplied<T, C>::Type;
  static constexpr int kHead = kHeadColumns, kKeys = kTileKeys, kStages = kStageCount;
  static constexpr bool kPaged = kPagedKeys, kEight = sizeof(C) == 1;
  static constexpr int kWarps = 4, kThreads = kWarps * 32;
  static constexpr int kRowWarps = kRowWarpCount, kKeyWarps = kWarps / kRowWarps;
  static constexpr int kRows = kRowWarps * 16;
  static constexpr int kOwn = kKeys / kKeyWarps;  // keys of a tile that a warp takes

  using TileQ = Tile<kHead>;
  using TileK = Tile<kHead * sizeof(C) / 2>;               // in units of 16 bits
  static constexpr int kBytes = kKeys * TileK::kRowBytes;  // of keys, and of values
  static constexpr int kBytesQ = kRows * TileQ::kRowBytes;
  static_assert(kOwn % 16 == 0 && kHead % 64 == 0 && kStages >= 2);
  static_assert(kWarps * 16 * kHead * 4 <= 2 * kBytes, "outputs are added up where a tile was");

  struct Small {
    float2 row[kWarps][16];  // the largest score, in powers of two, and the sum over it
    float factor[kEight ? kStages : 1][kEight ? kRows : 2];  // by which rows of q were divided
    // Whether the page of a key is one of the pool.
    alignas(4) unsigned char known[kPaged ? kStages : 1][kPaged ? kKeys : 8];
  };
  static constexpr int kShared = kStages * (2 * kBytes + kBytesQ) + sizeof(Small);
};

// A tile of a unit, on the way through a part.
struct Cursor {
  int b, head, rows, tile, end;  // key head, block of rows; tiles count from key 0
  unsigned number;               // of units since the part began
  bool fresh;                    // the first of its unit in this part
  Mask mask;
  Range seen;
};

template <typename Shape>
struct DecodeLoader {
  using T = typename Shape::T;
  using C = typename Shape::C;
  using TileK = typename Shape::TileK;
  static constexpr int kSegment = TileK::kSegment, kStep = Shape::kThreads / kSegment;
  static constexpr int kPasses = Shape::kKeys / kStep;

  const DecodeCall& call;
  const int thread, group, all_rows, row_blocks, units;
  const unsigned shared;
  typename Shape::Small& small;
  Cursor ahead;
  // Of the tile `ahead`: rows of k and v, or of what is paged the pages that they lie in, as the
  // table has them; -1 of none. What a page says is looked at a tile later, when it has come.
  int found[kPasses];

  __device__ __forceinline__ DecodeLoader(const DecodeCall& given, unsigned char* memory)
      : call(given),
        thread(threadIdx.x),
        group(given.Group()),
        all_rows(group * given.queries),
        row_blocks((all_rows + Shape::kRows - 1) / Shape::kRows),
        units(given.kv_heads * row_blocks),
        shared(SharedAddress(memory)),
        small(*reinterpret_cast<typename Shape::Small*>(
            memory + Shape::kStages * (2 * Shape::kBytes + Shape::kBytesQ))) {}

  __device__ __forceinline__ unsigned StageOf(int slot) const {
    return shared + slot * 2 * Shape::kBytes;
  }
  __device__ __forceinline__ int RingOf(const Cursor& at) const {
    return at.number % Shape::kStages;
  }
  __device__ __forceinline__ unsigned QueriesOf(const Cursor& at) const {
    return StageOf(Shape::kStages) + RingOf(at) * Shape::kBytesQ;
  }
  __device__ __forceinline__ int FirstRow(const Cursor& at) const { return at.rows * Shape::kRows; }

  __device__ __forceinline__ void Enter(Cursor& at) const {
    at.mask = call.MaskAt(at.b);
    at.seen = SeenBy(at.mask, call.queries);
    at.tile = at.seen.begin / Shape::kKeys;
    at.end = at.tile + TilesOf<Shape::kKeys>(at.seen);
  }

  __device__ __forceinline__ void Advance(Cursor& at) const {
    at.fresh = ++at.tile == at.end;
    if (!at.fresh) return;
    ++at.number;
    at.tile = at.seen.begin / Shape::kKeys;
    if (++at.rows < row_blocks) return;
    at.rows = 0;
    if (++at.head < call.kv_heads) return;
    at.head = 0;
    if (++at.b < call.batches) Enter(at);
  }

  __device__ __forceinline__ int KeyOf(int pass) const {
    return ahead.tile * Shape::kKeys + thread / kSegment + pass * kStep;
  }

  __device__ __forceinline__ void FindRows() {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int key = KeyOf(pass);
      found[pass] = -1;
      if (key < ahead.seen.begin || key >= ahead.seen.end) continue;
      found[pass] = key;
      if constexpr (Shape::kPaged) {
        const int* pages = call.pages + static_cast<int64>(ahead.b) * call.table;
        found[pass] = pages[key >> call.page_log2];
      }
    }
  }

  // From pages to rows, -1 of pages that are none of the pool.
  __device__ __forceinline__ void EnterPages() {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int page = found[pass], inside = KeyOf(pass) & ((1 << call.page_log2) - 1);
      const bool known = static_cast<unsigned>(page) < static_cast<unsigned>(call.page_count);
      found[pass] = known ? (page << call.page_log2) + inside : -1;
    }
  }

  // Where a chunk of 16 bytes of a row of `ahead` is; null past its rows and columns.
  __device__ __forceinline__ const unsigned short* QueryAt(int row, int chunk) const {
    if (row >= all_rows || chunk * 8 >= call.head) return nullptr;
    return call.q + ahead.b * call.q_strides.batch + row / group * call.q_strides.token +
           (ahead.head * group + row % group) * call.q_strides.head + chunk * 8;
  }

  __device__ __forceinline__ void LoadQueries() {
    for (int i = thread; i < Shape::kRows * Shape::kHead / 8; i += Shape::kThreads) {
      const int local = i / (Shape::kHead / 8), chunk = i % (Shape::kHead / 8);
      const unsigned short* from = QueryAt(FirstRow(ahead) + local, chunk);
      if constexpr (Shape::kEight) {
        const float factor = StoreHalves<T, Shape::kHead>(QueriesOf(ahead), local, chunk, from);
        if (chunk == 0) small.factor[RingOf(ahead)][local] = factor;
      } else {
        CopyAsync16(QueriesOf(ahead) + Shape::TileQ::Chunk(local, chunk),
                    from == nullptr ? call.q : from, from != nullptr);
      }
    }
  }

  // The first row of keys or values of a cursor's key head.
  __device__ __forceinline__ const C* HeadAt(const void* tensor, const Strides& strides,
                                             const Cursor& at) const {
    return static_cast<const C*>(tensor) + at.b * strides.batch + at.head * strides.head;
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

  // Has the first tiles of a part, of `count`, brought into the L2 cache, as a hint: what others
  // write there meanwhile is not missed.
  __device__ __forceinline__ void Prefetch(Tiles count) const {
    Cursor at = ahead;
#pragma unroll 1
    for (int i = 0; i < Shape::kStages - 1 && i < count; ++i) {
      const C* k = HeadAt(call.k, call.k_strides, at);
      const C* v = HeadAt(call.v, call.v_strides, at);
      constexpr int kElements = 32 / sizeof(C), kSectors = Shape::kHead / kElements;  // of a row
#pragma unroll 1
      for (int n = thread; n < Shape::kKeys * kSectors; n += Shape::kThreads) {
        const int64 key = at.tile * Shape::kKeys + n / kSectors;
        const int column = n % kSectors * kElements;
        if (key < at.seen.begin || key >= at.seen.end) continue;
        if (column < call.head) PrefetchSector(k + key * call.k_strides.token + column);
        if (column < call.head_v) PrefetchSector(v + key * call.v_strides.token + column);
      }
      if (i + 1 < count) Advance(at);
    }
  }

  // The first tile of a part is ahead, and returned.
  __device__ __forceinline__ Cursor Start(const Spot& spot) {
    ahead.b = spot.sequence;
    ahead.head = spot.unit / row_blocks;
    ahead.rows = spot.unit % row_blocks;
    ahead.number = 0;
    ahead.fresh = true;
    Enter(ahead);
    ahead.tile += spot.tile;
    FindRows();
    return ahead;
  }

  // Starts the copies of the tile `ahead` and goes on to the next one. `more`: there is one.
  __device__ __forceinline__ void Load(int slot, bool more) {
    if (ahead.fresh) LoadQueries();
    if constexpr (Shape::kPaged) EnterPages();
    LoadRows(StageOf(slot), HeadAt(call.k, call.k_strides, ahead), call.k_strides.token, call.head);
    LoadRows(StageOf(slot) + Shape::kBytes, HeadAt(call.v, call.v_strides, ahead),
             call.v_strides.token, call.head_v);
    if constexpr (Shape::kPaged) {
      if (thread % kSegment == 0)
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
          small.known[slot][thread / kSegment + pass * kStep] = found[pass] >= 0;
    }
    if (!more) return;
    Advance(ahead);
    FindRows();
  }
};

}  // namespace attention
