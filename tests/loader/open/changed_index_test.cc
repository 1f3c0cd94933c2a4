// Promise: numbers of an index that somebody changed, under right hashes, give an error value or a
// bundle that works; scripts/fuzz runs the same on many more.
#include <gtest/gtest.h>

#include "support/changed_numbers.h"

namespace kbundle {
namespace {

TEST(ChangedIndex, GivesAnAnswerFromOpenToPlan) {
  testing::ExpectAnswersToChangedNumbers(testing::FuzzSeeds());
}

}  // namespace
}  // namespace kbundle
