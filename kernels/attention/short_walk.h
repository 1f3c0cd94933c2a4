// Who takes what of short sequences (short.cuh), and through which places of shared memory it
// comes.
//
// A *unit* are the query heads of one sequence that share a key head. Its work are tiles: 64
// queries of one head, heads one after another, then the next 64 queries. A unit's tiles are cut
// into parts of equal length, the *items*; a block takes items blockIdx.x, blockIdx.x + gridDim.x,
// .. The keys and values that any tile of an item sees come into shared memory by 64,
// into the slots of a ring, where all its tiles find them. kGroups warp groups take a tile each,
// which is a *round*. An item that sees more than there are slots comes anew for every round.
//
//   tiles   | A0 B0 C0 | A1 B1 C1 | A2 B2 C2 |      3 heads, 3 times 64 queries
//   items   |       0      |       1         |      2 parts: tiles 0 to 4, tiles 5 to 8
//   rounds  | A0 B0 | C0 A1 | B1 |                  of item 0, for 2 groups
//
// What loads and what computes walk in the same order, and count the slots by themselves. Host and
// device share the arithmetic, so that it is tested without a GPU.
#pragma once

#if defined(__CUDACC__)
#define KB_WALK __device__ __forceinline__
#else
#define KB_WALK inline
#endif

namespace attention {

constexpr int kShortRows = 64;   // queries of a tile, and keys of a slot
constexpr int kShortGroups = 2;  // warp groups that compute
constexpr int kShortSlots = 5;

struct ShortCall {
  float* stats;  // or null
  int batches, heads, kv_heads, queries, keys;
  int few, many;    // parts of a unit, as whose busiest block has less to do
  int first, last;  // query q sees the keys q + first to q + last, as far as there are
  float scale;

  KB_WALK int Shares() const { return heads / kv_heads; }
  KB_WALK int Units() const { return batches * kv_heads; }
  KB_WALK int Tiles() const { return Shares() * ((queries + kShortRows - 1) / kShortRows); }

  KB_WALK int Parts(int blocks) const {
    return Rounds(few, blocks) <= Rounds(many, blocks) ? few : many;
  }
  // Of the busiest block.
  KB_WALK int Rounds(int parts, int blocks) const {
    const int in_item = (Tiles() - 1) / (kShortGroups * parts) + 1;
    return ((Units() * parts - 1) / blocks + 1) * in_item;
  }

  // The keys that queries see: from the first of `top`, to behind the last of `bottom`.
  KB_WALK int Begin(int top) const { return top + first > 0 ? top + first : 0; }
  KB_WALK int End(int bottom) const {
    const int row = bottom < queries ? bottom : queries - 1;
    const int end = row + last < keys ? row + last + 1 : keys;
    return end > 0 ? end : 0;
  }
  // The same in slots, of the tile whose first query is `top`.
  KB_WALK int FirstSlot(int top) const { return Begin(top) / kShortRows; }
  KB_WALK int LastSlot(int top) const {
    const int begin = FirstSlot(top),
              end = (End(top + kShortRows - 1) + kShortRows - 1) / kShortRows;
    return end > begin ? end : begin;
  }
};

// A place in the ring; how many came before it, and the parity of how often the ring went around.
struct ShortSlot {
  int at, number;
  unsigned phase;

  KB_WALK void Skip(int count) {
    number += count;
    for (at += count; at >= kShortSlots; at -= kShortSlots) phase ^= 1u;
  }
  KB_WALK void Next() { Skip(1); }
};

struct ShortItem {
  int b, kv, first, last;  // tiles
  int begin, end;          // keys that any of them sees, by 64

  KB_WALK int Rounds() const { return (last - first + kShortGroups - 1) / kShortGroups; }
  KB_WALK bool Stays() const { return end - begin <= kShortSlots; }
  // Whether a round is the last one that finds keys where they are.
  KB_WALK bool Gives(int round) const { return round == Rounds() - 1 || !Stays(); }

  // Item number `number`: of all units the last part first, whose causal queries see most. False:
  // there is none.
  KB_WALK bool Find(const ShortCall& call, int parts, int number) {
    const int units = call.Units(), part = parts - 1 - number / units;
    if (part < 0) return false;
    b = number % units / call.kv_heads, kv = number % units % call.kv_heads;
    const int shares = call.Shares(), least = call.Tiles() / parts, rest = call.Tiles() % parts;
    first = part * least + (part < rest ? part : rest);
    last = first + least + (part < rest ? 1 : 0);
    begin = call.FirstSlot(first / shares * kShortRows);
    end = call.LastSlot((last - 1) / shares * kShortRows);
    return true;
  }
};

// A group's part of a round: a tile, or none. It sees `count` slots' keys, from key 64 * begin on;
// the item has slots before and behind them.
struct ShortTile {
  int b, head, top, begin, before, count, behind;
  bool some, gives;
  ShortSlot slot;  // the item's first

  KB_WALK ShortSlot First() const {
    ShortSlot found = slot;
    found.Skip(before);
    return found;
  }
};

// The tiles of a group in turn.
struct ShortWalk {
  int group, parts, number, stride;  // the block's first item, and by how many it goes on
  int round = -1, rounds = 0;
  ShortItem item = {};
  ShortSlot from = {};

  // False: there is no other round.
  KB_WALK bool Next(const ShortCall& call, ShortTile& tile) {
    if (++round >= rounds) {
      if (rounds > 0) number += stride;
      if (!item.Find(call, parts, number)) return false;
      round = 0, rounds = item.Rounds();
    }
    const int at = item.first + round * kShortGroups + group, shares = call.Shares();
    tile.some = at < item.last, tile.gives = item.Gives(round);
    tile.b = item.b, tile.head = item.kv * shares + at % shares;
    tile.top = at / shares * kShortRows, tile.begin = call.FirstSlot(tile.top);
    tile.count = tile.some ? call.LastSlot(tile.top) - tile.begin : 0;
    tile.before = tile.count > 0 ? tile.begin - item.begin : 0;
    tile.behind = item.end - item.begin - tile.before - tile.count;
    tile.slot = from;
    if (tile.gives) from.Skip(item.end - item.begin);
    return true;
  }
};

// Whether a group may wait for the first keys of `next` before it gives back slot `last`, its last
// one: if it were to wait for just that place, or had others to give first, it would wait forever.
KB_WALK bool ComesWithout(const ShortSlot& last, const ShortTile& next) {
  return !(next.before > 0 && next.gives) &&
         next.slot.number + next.before < last.number + kShortSlots;
}

}  // namespace attention
