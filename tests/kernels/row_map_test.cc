// The map of rows that routing hands to permutation, run on the CPU by simt/machine.h.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/simt/launch.h"
//
#include "kbundle/device_row_map.h"

namespace kbundle {
namespace device {
namespace {

// Tokens of a part, and threads that sum parts up: as many segments as a warp has, segments of one
// part, and of more than a thread holds.
void NumbersRowsExpertByExpert(int part_tokens, int threads) {
  constexpr int kTokens = 300, kSlots = 5, kExperts = 300, kAlign = 16;
  const int parts = (kTokens + part_tokens - 1) / part_tokens;
  std::mt19937 random(3);
  std::vector<int> indices(kTokens * kSlots), counts(parts * kExperts), totals(kExperts);
  for (int& index : indices) index = static_cast<int>(random() % (kExperts + 3)) - 1;
  std::vector<int> map(kTokens * (2 * kSlots + 1), -9), offsets(kExperts + 1, -9);
  for (int i = 0; i < kTokens * kSlots; ++i) {
    const int part = i / kSlots / part_tokens, expert = indices[i];
    if (expert >= 0 && expert < kExperts) ++counts[part * kExperts + expert];
  }
  simt::Launch((kExperts + 7) / 8, threads,
               [&] { SumPartCounts(counts.data(), totals.data(), kExperts, parts); });
  simt::Launch(parts, 32, [&] {
    WriteCompactMap<512>(map.data(), offsets.data(), totals.data(), counts.data(), indices.data(),
                         kTokens, kSlots, kExperts, kAlign, part_tokens);
  });
  int start = 0;
  std::vector<int> next(kExperts), sizes(kExperts);
  for (int index : indices)
    if (index >= 0 && index < kExperts) ++sizes[index];
  for (int e = 0; e < kExperts; ++e) {
    ASSERT_EQ(offsets[e], start);
    ASSERT_EQ(totals[e], sizes[e]);
    next[e] = start;
    start += (sizes[e] + kAlign - 1) / kAlign * kAlign;
  }
  ASSERT_EQ(offsets[kExperts], start);
  for (int t = 0; t < kTokens; ++t) {
    const int* const entries = &map[t * (2 * kSlots + 1)];
    for (int slot = 0; slot < kSlots; ++slot) {
      const int e = indices[t * kSlots + slot];
      ASSERT_EQ(entries[slot], e >= 0 && e < kExperts ? next[e]++ : -1);
      ASSERT_EQ(entries[kSlots + slot], slot);
    }
    ASSERT_EQ(entries[2 * kSlots], kSlots);
  }
}

TEST(RowMap, NumbersRowsExpertByExpert) {
  NumbersRowsExpertByExpert(32, 1024);
  NumbersRowsExpertByExpert(2, 32);
  NumbersRowsExpertByExpert(1, 64);
  NumbersRowsExpertByExpert(1, 512);
}

}  // namespace
}  // namespace device
}  // namespace kbundle
