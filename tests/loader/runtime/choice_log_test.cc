// Promise: what was chosen is counted by problem; ever new problems of one bundle neither grow the log without end nor
// hide what another bundle chose.
#include "loader/runtime/choice_log.h"

#include <gtest/gtest.h>

#include <string>

namespace kbundle {
namespace {

RuntimeStats::Chosen RowOf(const std::string& content, const std::string& problem) {
  RuntimeStats::Chosen row;
  row.content_id = content;
  row.problem = problem;
  row.variant = "a.b/c@sm_90a";
  row.choice = "manifest order";
  row.device = "sm_90";
  return row;
}

uint64_t CountOf(const ChoiceLog& log, const std::string& content, const std::string& problem) {
  uint64_t count = 0;
  for (const RuntimeStats::Chosen& row : log.Rows()) {
    if (row.content_id == content && row.problem == problem) count += row.count;
  }
  return count;
}

TEST(ChoiceLog, AProblemHasOneRowAndItsCount) {
  ChoiceLog log;
  for (int i = 0; i < 3; ++i) log.Count(RowOf("one", "a.b(f32[3])"));
  log.Count(RowOf("one", "a.b(f32[4])"));
  EXPECT_EQ(log.Rows().size(), 2u);
  EXPECT_EQ(CountOf(log, "one", "a.b(f32[3])"), 3u);
}

TEST(ChoiceLog, PastItsLimitABundleSharesARowAndOthersKeepTheirs) {
  ChoiceLog log;
  const size_t problems = 2 * ChoiceLog::kMaxRows;
  for (size_t i = 0; i < problems; ++i) log.Count(RowOf("busy", std::to_string(i)));
  log.Count(RowOf("busy", "0"));
  EXPECT_EQ(log.Rows().size(), ChoiceLog::kMaxRows + 1);
  EXPECT_EQ(CountOf(log, "busy", "0"), 2u);
  EXPECT_EQ(CountOf(log, "busy", ChoiceLog::kFurtherProblems), problems - ChoiceLog::kMaxRows);
  log.Count(RowOf("quiet", "a.b(f32[3])"));
  EXPECT_EQ(CountOf(log, "quiet", "a.b(f32[3])"), 1u);
  EXPECT_EQ(CountOf(log, "quiet", ChoiceLog::kFurtherProblems), 0u);
}

TEST(ChoiceLog, OfEverNewBundlesTheFirstIsForgotten) {
  ChoiceLog log;
  const size_t bundles = 2 * ChoiceLog::kMaxContents;
  for (size_t i = 0; i < bundles; ++i) log.Count(RowOf(std::to_string(i), "a.b(f32[3])"));
  EXPECT_EQ(log.Rows().size(), ChoiceLog::kMaxContents);
  EXPECT_EQ(CountOf(log, "0", "a.b(f32[3])"), 0u);
  EXPECT_EQ(CountOf(log, std::to_string(bundles - 1), "a.b(f32[3])"), 1u);
}

}  // namespace
}  // namespace kbundle
