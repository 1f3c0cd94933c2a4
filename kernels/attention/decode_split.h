// Decode shared out over a GPU: which block takes which keys, for lengths that only the device
// knows.
//
// A *unit* is what one block could compute alone: some query rows of one sequence that share a key
// head. Its work are the tiles of keys that the sequence sees, at least one, so that somebody
// writes the zeros of an empty one. All units of all sequences stand in one row of tiles, which is
// cut into `parts` of equal length; a block takes a part:
//
//   sequence  |   0   |       1       | 2 |
//   unit      | 0 | 1 |   0   |   1   |0|1|
//   tiles     |. .|. .|. . . .|. . . .|.|.|
//   part      |   0    |    1    |   2    |
//
// What a part has of a unit is a *segment*. One that is the whole unit is written as it is. A part
// has at most two others, one that begins inside a unit and one that ends inside: these are
// partial results, added up by whom `Cut` names. Host and device share the arithmetic, so that it
// is tested without a GPU.
#pragma once

#if defined(__CUDACC__)
#define KB_SPLIT __host__ __device__ __forceinline__
#else
#define KB_SPLIT inline
#endif

namespace attention {

using Tiles = long long;  // a number of tiles, or a place in the row of all tiles

// Where a part begins. Parts differ by one tile at most; of few tiles the last parts are empty.
KB_SPLIT Tiles PartBegin(Tiles total, int parts, int part) {
  const Tiles rest = total % parts;
  return total / parts * part + (part < rest ? part : rest);
}

// The part that has a tile.
KB_SPLIT int PartOf(Tiles total, int parts, Tiles tile) {
  const Tiles least = total / parts, rest = total % parts;
  if (tile < rest * (least + 1)) return static_cast<int>(tile / (least + 1));
  return static_cast<int>(rest + (tile - rest * (least + 1)) / least);
}

// A tile by its place among all: `tile` counts from the beginning of its unit.
struct Spot {
  int sequence, unit, tile, tiles;
};

// The spot of tile `at`, which is in sequence `sequence` or behind; that one begins at `begin`.
// tiles(b): of one unit of sequence b.
template <typename TilesOf>
KB_SPLIT Spot SpotOf(Tiles at, int sequence, Tiles begin, int units, const TilesOf& tiles) {
  int each = tiles(sequence);
  while (at - begin >= static_cast<Tiles>(each) * units) {
    begin += static_cast<Tiles>(each) * units;
    each = tiles(++sequence);
  }
  const Tiles inside = at - begin;
  const int unit = static_cast<int>(inside / each);
  return {sequence, unit, static_cast<int>(inside - static_cast<Tiles>(unit) * each), each};
}

// Of a segment that is not a whole unit: which of its part's two partial results it is.
KB_SPLIT int SlotOf(bool begins_unit) { return begins_unit ? 1 : 0; }

// Partial results of one unit: slot 1 of part `first`, slot 0 of the parts up to `last`.
struct Cut {
  int first, last;
};

// What is to be added up where `part` (not the first) begins, at `spot`; nothing, first > last,
// unless it is the first part that begins inside its unit.
KB_SPLIT Cut CutAt(Tiles total, int parts, int part, const Spot& spot) {
  const Tiles begin = PartBegin(total, parts, part) - spot.tile;  // of the unit
  if (spot.tile == 0 || PartBegin(total, parts, part - 1) > begin) return {1, 0};
  return {part - 1, PartOf(total, parts, begin + spot.tiles - 1)};
}

}  // namespace attention
