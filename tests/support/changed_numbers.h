// Bundles whose index somebody changed, under right hashes.
#ifndef KBUNDLE_TESTS_SUPPORT_CHANGED_NUMBERS_H_
#define KBUNDLE_TESTS_SUPPORT_CHANGED_NUMBERS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/open_to_plan.h"

namespace kbundle::testing {

// Each of 300 changes of each bundle gives an error value or a bundle that works, from open to
// plan, and both are seen. The bundles themselves work.
inline void ExpectAnswersToChangedNumbers(const std::vector<std::string>& bundles) {
  int opened = 0, refused = 0;
  uint32_t seed = 1;
  OpenToPlan loader;
  for (const std::string& bytes : bundles) {
    ASSERT_TRUE(loader.Run(bytes));
    for (int i = 0; i < 300; ++i) {
      std::string changed = bytes;
      ChangeNumbers(&changed, seed++);
      RepairHashes(&changed);
      ++(loader.Run(changed) ? opened : refused);
    }
  }
  EXPECT_GT(opened, 10);
  EXPECT_GT(refused, 100);
}

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_CHANGED_NUMBERS_H_
