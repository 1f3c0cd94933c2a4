// Promise: numbers of an index that somebody changed, under right hashes, give an error value or a
// bundle that works; scripts/fuzz runs the same on many more.
#include <gtest/gtest.h>

#include "support/open_to_plan.h"

namespace kbundle {
namespace {

TEST(ChangedIndex, GivesAnAnswerFromOpenToPlan) {
  int opened = 0, refused = 0;
  uint32_t seed = 1;
  testing::OpenToPlan loader;
  for (const std::string& bytes : testing::FuzzSeeds()) {
    ASSERT_TRUE(loader.Run(bytes));
    for (int i = 0; i < 300; ++i) {
      std::string changed = bytes;
      testing::ChangeNumbers(&changed, seed++);
      testing::RepairHashes(&changed);
      ++(loader.Run(changed) ? opened : refused);
    }
  }
  EXPECT_GT(opened, 10);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace kbundle
