// How decode is shared out: kernels/attention/decode_split.h, without a kernel.
#include "attention/decode_split.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace attention {
namespace {

struct Work {
  std::vector<int> tiles;  // of one unit of each sequence
  int units, parts;

  Tiles Total() const {
    Tiles total = 0;
    for (int each : tiles) total += static_cast<Tiles>(each) * units;
    return total;
  }
  Spot At(Tiles tile) const {
    return SpotOf(tile, 0, 0, units, [&](int b) { return tiles[b]; });
  }
};

std::vector<Work> Works() {
  std::vector<Work> works = {{{1}, 1, 264}, {{5000}, 1, 264}, {{1, 1, 1}, 1, 2}, {{264}, 1, 264}};
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    Work work{{}, 1 + static_cast<int>(random() % 9), 1 + static_cast<int>(random() % 50)};
    const int most = i % 3 == 0 ? 200 : 12;
    for (int n = 1 + random() % 20; n > 0; --n) work.tiles.push_back(1 + random() % most);
    works.push_back(work);
  }
  return works;
}

// Promise: parts are equal but for one tile, lie one after another, and PartOf finds each tile's.
TEST(DecodeSplit, PartsAreEqualAndCoverEveryTileOnce) {
  for (const Work& work : Works()) {
    const Tiles total = work.Total();
    EXPECT_EQ(PartBegin(total, work.parts, 0), 0);
    EXPECT_EQ(PartBegin(total, work.parts, work.parts), total);
    for (int p = 0; p < work.parts; ++p) {
      const Tiles begin = PartBegin(total, work.parts, p);
      const Tiles end = PartBegin(total, work.parts, p + 1);
      EXPECT_GE(end - begin, total / work.parts);
      EXPECT_LE(end - begin, total / work.parts + 1);
      for (Tiles tile = begin; tile < end; ++tile) ASSERT_EQ(PartOf(total, work.parts, tile), p);
    }
  }
}

// Promise: a tile's spot counts it from the beginning of its unit, from wherever the search begins.
TEST(DecodeSplit, EveryTileHasItsSpot) {
  for (const Work& work : Works()) {
    Tiles tile = 0;
    for (int b = 0; b < static_cast<int>(work.tiles.size()); ++b) {
      const Tiles begin = tile;
      for (int unit = 0; unit < work.units; ++unit) {
        for (int i = 0; i < work.tiles[b]; ++i, ++tile) {
          for (const Spot& spot :
               {work.At(tile), SpotOf(tile, b, begin, work.units,
                                      [&](int sequence) { return work.tiles[sequence]; })}) {
            ASSERT_EQ(spot.sequence, b);
            ASSERT_EQ(spot.unit, unit);
            ASSERT_EQ(spot.tile, i);
            ASSERT_EQ(spot.tiles, work.tiles[b]);
          }
        }
      }
    }
  }
}

// Promise: every unit that borders cut is added up exactly once, from exactly the partial results
// that parts write; a part writes no slot twice, and what is whole is nobody's partial result.
TEST(DecodeSplit, CutsNameThePartialResultsThatAreWritten) {
  for (const Work& work : Works()) {
    const Tiles total = work.Total();
    std::map<std::pair<int, int>, std::pair<int, int>> written;  // (part, slot) -> unit
    for (int p = 0; p < work.parts; ++p) {
      Tiles tile = PartBegin(total, work.parts, p);
      const Tiles end = PartBegin(total, work.parts, p + 1);
      while (tile < end) {
        const Spot spot = work.At(tile);
        const Tiles rest = spot.tiles - spot.tile, here = rest < end - tile ? rest : end - tile;
        if (spot.tile != 0 || here != spot.tiles) {
          const auto key = std::make_pair(p, SlotOf(spot.tile == 0));
          ASSERT_TRUE(written.emplace(key, std::make_pair(spot.sequence, spot.unit)).second);
        }
        tile += here;
      }
    }
    std::map<std::pair<int, int>, int> added;
    for (int p = 1; p < work.parts; ++p) {
      if (PartBegin(total, work.parts, p) >= total) continue;
      const Spot spot = work.At(PartBegin(total, work.parts, p));
      const Cut cut = CutAt(total, work.parts, p, spot);
      if (cut.first > cut.last) continue;
      const auto unit = std::make_pair(spot.sequence, spot.unit);
      ASSERT_EQ(added[unit]++, 0);
      for (int q = cut.first; q <= cut.last; ++q) {
        const auto found = written.find({q, SlotOf(q == cut.first)});
        ASSERT_TRUE(found != written.end() && found->second == unit);
        written.erase(found);
      }
    }
    EXPECT_TRUE(written.empty());
  }
}

}  // namespace
}  // namespace attention
