// Promise: an execution plan is chosen like any variant, for its own problem alone; where the
// library for it is missing the next variant runs, in the workspace that was asked for beforehand.
#include <gtest/gtest.h>

#include "kbundle/describe.h"
#include "kbundle/runtime.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::FakeAddresses;
using testing::FakeDriver;
using testing::ProblemOf;

// The plan for 4 rows of 8 takes 5120 bytes, the kernel of "own" 100,000 for each of K.
class ExecutionPlanChoice : public ::testing::Test {
 protected:
  ~ExecutionPlanChoice() override { Policy::Global().Clear(); }

  static Device Hopper() {
    Device device;
    device.kind = Device::Kind::kCuda;
    device.major = 9;
    return device;
  }
  std::string First(const Problem& problem) {
    const Result<Selected> chosen = SelectFirst(*bundle_, problem, Hopper(), {});
    return chosen.ok() ? bundle_->VariantId(chosen->variant) : chosen.status().ToString();
  }

  testing::TempDir dir_;
  std::shared_ptr<const Bundle> bundle_ = testing::PlansMaker().Open(dir_ / "plans.kb");
  Problem planned_ = ProblemOf(*bundle_, "plans.one", {"f32[4,8]"});
  Problem other_ = ProblemOf(*bundle_, "plans.one", {"f32[5,8]"});
};

TEST_F(ExecutionPlanChoice, ItComesFirstForItsOwnProblemAlone) {
  EXPECT_TRUE(First(planned_).starts_with("plans.one/planned")) << First(planned_);
  EXPECT_TRUE(First(other_).starts_with("plans.one/own")) << First(other_);
}

TEST_F(ExecutionPlanChoice, ExplainNamesWhatDiffersAndNothingElse) {
  const std::string json = ExplainJson(*bundle_, other_, Hopper(), {});
  EXPECT_NE(json.find("\"its execution plan is for another problem: ROWS is 5, the plan's 4\""),
            std::string::npos)
      << json;
}

TEST_F(ExecutionPlanChoice, TheWorkspaceSufficesForWhatFollowsAPlanToo) {
  const auto largest = MaxWorkspaceBytes(*bundle_, planned_, Device::Kind::kCuda);
  ASSERT_TRUE(largest.ok()) << largest.status().ToString();
  EXPECT_EQ(*largest, 800000);
  const Result<Selected> chosen = SelectFirst(*bundle_, planned_, Hopper(), {});
  EXPECT_EQ(WorkspaceBytes(*bundle_, planned_, chosen->variant, 16).value(), 5120);
}

TEST_F(ExecutionPlanChoice, WithoutItsLibraryTheNextVariantRuns) {
  FakeDriver driver;
  Runtime runtime(driver.api());
  const auto plan = runtime.MakePlan(bundle_, planned_, Device::Kind::kCuda, {});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*plan)->variants().at(0)), "plans.one/own@sm_90a");
  FakeAddresses addresses(planned_);
  ASSERT_TRUE((*plan)->Launch(nullptr, addresses.args()).ok());
  EXPECT_EQ(driver.launches().at(0).symbol, "own");
}

TEST_F(ExecutionPlanChoice, WithoutAnotherVariantTheErrorSaysWhichLibraryIsWanted) {
  ASSERT_TRUE(Policy::Global().Deny(*bundle_, "plans.one/own").ok());
  FakeDriver driver;
  Runtime runtime(driver.api());
  const auto plan = runtime.MakePlan(bundle_, planned_, Device::Kind::kCuda, {});
  ASSERT_FALSE(plan.ok());
  const std::string words = plan.status().message();
  EXPECT_NE(words.find("plans.one/planned"), std::string::npos) << words;
  // Where the process has a cuDNN, it is another than the plan's; else there is none.
  const bool named = words.find("made by cuDNN 9.0.0") != std::string::npos ||
                     words.find("looking for cuDNN") != std::string::npos;
  EXPECT_TRUE(named) << words;
  EXPECT_NE(words.find("install"), std::string::npos) << words;
}

}  // namespace
}  // namespace kbundle
