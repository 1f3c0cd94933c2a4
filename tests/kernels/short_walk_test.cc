// How short sequences are shared out: kernels/attention/short_walk.h, without a kernel.
#include "attention/short_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace attention {
namespace {

constexpr int kWide = 1 << 30;

struct Case {
  ShortCall call;
  int parts, blocks;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int i = 0; i < 400; ++i) {
    const int kv = 1 + below(4), queries = 17 + below(500), keys = 1 + below(i % 2 ? 320 : 900);
    const int first = i % 3 == 0 ? -below(200) : -kWide,
              last = i % 4 == 0 ? kWide : below(100) - 30;
    Case made{{nullptr, 1 + below(5), kv * (1 + below(6)), kv, queries, keys, 1, 1, first, last, 1},
              1,
              1 + below(132)};
    made.parts = 1 + below((made.call.Tiles() + 1) / 2);
    cases.push_back(made);
  }
  return cases;
}

// What a block loads into the ring, in order: a sequence, a key head, and a tile of its keys.
using Keys = std::tuple<int, int, int>;
std::vector<Keys> LoadsOf(const Case& c, int block) {
  std::vector<Keys> loads;
  ShortItem item;
  for (int number = block; item.Find(c.call, c.parts, number); number += c.blocks)
    for (int round = 0; round < item.Rounds(); ++round)
      if (round == 0 || !item.Stays())
        for (int at = item.begin; at < item.end; ++at) loads.emplace_back(item.b, item.kv, at);
  return loads;
}

template <typename Visit>  // (tile, the tile after it or null)
void Walk(const Case& c, int block, int group, const Visit& visit) {
  ShortWalk walk{group, c.parts, block, c.blocks};
  ShortTile now{}, next{};
  if (!walk.Next(c.call, now)) return;
  while (walk.Next(c.call, next)) {
    visit(now, &next);
    now = next;
  }
  visit(now, nullptr);
}

// Promise: each 64 queries of each head are one group's tile, once, and see by 64 the keys that the
// mask lets any of them see.
TEST(ShortWalk, TakesEveryTileOnceWithTheKeysThatItSees) {
  for (const Case& c : Cases()) {
    std::map<std::tuple<int, int, int>, int> seen;
    for (int block = 0; block < c.blocks; ++block)
      for (int group = 0; group < kShortGroups; ++group)
        Walk(c, block, group, [&](const ShortTile& tile, const ShortTile*) {
          if (!tile.some) return;
          ++seen[{tile.b, tile.head, tile.top}];
          const int bottom = std::min(tile.top + 64, c.call.queries) - 1;
          const long long begin = std::max(0ll, 0ll + tile.top + c.call.first);
          const long long end = std::min(0ll + c.call.keys, 1ll + bottom + c.call.last);
          if (begin >= end) {
            EXPECT_LE(tile.count, 1);  // of which every score is hidden
          } else {
            EXPECT_EQ(tile.begin, begin / 64);
            EXPECT_EQ(tile.begin + tile.count, (end + 63) / 64);
          }
        });
    EXPECT_EQ(seen.size(), c.call.batches * c.call.heads * ((c.call.queries + 63) / 64));
    for (const auto& [tile, count] : seen) EXPECT_EQ(count, 1);
  }
}

// Promise: what a group computes with lies in the slots where it looks, and each group gives each
// slot back once for each time that it is filled, in the order of filling but for what it passes.
TEST(ShortWalk, FindsKeysWhereTheyWereLoadedAndGivesEachBackOnce) {
  for (const Case& c : Cases()) {
    for (int block = 0; block < c.blocks; ++block) {
      const std::vector<Keys> loads = LoadsOf(c, block);
      for (int group = 0; group < kShortGroups; ++group) {
        std::vector<int> given(loads.size());
        Walk(c, block, group, [&](const ShortTile& tile, const ShortTile*) {
          const int shares = c.call.Shares();
          ShortSlot slot = tile.First();
          for (int at = 0; at < tile.count; ++at, slot.Next()) {
            ASSERT_LT(slot.number, loads.size());
            EXPECT_EQ(loads[slot.number], Keys(tile.b, tile.head / shares, tile.begin + at));
            EXPECT_EQ(slot.at, slot.number % kShortSlots);
            EXPECT_EQ(slot.phase, slot.number / kShortSlots % 2);
          }
          for (int at = 0; tile.gives && at < tile.before + tile.count + tile.behind; ++at)
            ++given.at(tile.slot.number + at);
        });
        EXPECT_TRUE(std::all_of(given.begin(), given.end(), [](int n) { return n == 1; }));
      }
    }
  }
}

// Promise: where a group starts on the next tile before it gives back its last slot, the next
// tile's first keys need neither that slot nor one that the group has yet to pass.
TEST(ShortWalk, WaitsForNoSlotThatItHolds) {
  int without = 0;
  for (const Case& c : Cases()) {
    for (int block = 0; block < c.blocks; ++block)
      for (int group = 0; group < kShortGroups; ++group)
        Walk(c, block, group, [&](const ShortTile& tile, const ShortTile* next) {
          if (next == nullptr || tile.count == 0 || next->count == 0) return;
          ShortSlot last = tile.First();
          last.Skip(tile.count - 1);
          if (!ComesWithout(last, *next)) return;
          ++without;
          EXPECT_LT(next->First().number - kShortSlots, last.number);
          EXPECT_TRUE(next->before == 0 || !next->gives);
        });
  }
  EXPECT_GT(without, 1000);
}

// Promise: of two numbers of parts the one is taken whose busiest block has fewer rounds.
TEST(ShortWalk, TakesThePartsThatShareTheWorkOutMoreEqually) {
  for (const Case& c : Cases()) {
    ShortCall call = c.call;
    call.few = 1, call.many = std::min(8, (call.Tiles() + 1) / 2);
    const auto busiest = [&](int parts) {
      int most = 0;
      for (int block = 0; block < c.blocks; ++block) {
        int rounds = 0;
        ShortItem item;
        for (int n = block; item.Find(call, parts, n); n += c.blocks) rounds += item.Rounds();
        most = std::max(most, rounds);
      }
      return most;
    };
    const int parts = call.Parts(c.blocks);
    const int other = parts == call.few ? call.many : call.few;
    EXPECT_LE(busiest(parts), call.Rounds(other, c.blocks));
  }
}

}  // namespace
}  // namespace attention
