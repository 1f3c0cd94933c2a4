// Promise: a launch is legal as the first call of a capture and allocates nothing; making a plan is
// legal beside somebody else's capture; memory reaches a plateau.
#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <set>

#include "kbundle/runtime.h"
#include "support/allocations.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::FakeAddresses;
using testing::FakeDriver;
using testing::kCuda;
using testing::ProblemOf;
using testing::RunMaker;

class CaptureTest : public ::testing::Test {
 protected:
  testing::TempDir dir_;
  std::shared_ptr<const Bundle> bundle_ = RunMaker().Open(dir_ / "run.kb");
  FakeDriver driver_;
  Runtime runtime_{driver_.api()};

  std::vector<std::shared_ptr<const Plan>> AllPlans() {
    std::vector<std::shared_ptr<const Plan>> plans;
    for (const char* op : {"run.scale", "run.steps", "run.tiles", "run.wide"}) {
      auto plan = runtime_.MakePlan(bundle_, ProblemOf(*bundle_, op, {"f32[3,64]"}), kCuda);
      EXPECT_TRUE(plan.ok()) << plan.status().ToString();
      plans.push_back(*plan);
    }
    return plans;
  }
};

TEST_F(CaptureTest, LaunchOnlyEnqueues) {
  const auto plans = AllPlans();
  driver_.ClearLog();
  for (const auto& plan : plans) {
    FakeAddresses addresses(plan->problem());
    ASSERT_TRUE(plan->Launch(nullptr, addresses.args()).ok());
  }
  const std::vector<std::string> calls = driver_.calls();
  EXPECT_EQ(std::set<std::string>(calls.begin(), calls.end()),
            (std::set<std::string>{"CtxGetId", "LaunchKernelEx", "MemsetD8Async", "MemcpyDtoDAsync",
                                   "TensorMapReplaceAddress"}));
}

TEST_F(CaptureTest, AnotherContextThanThePlansIsAnErrorValue) {
  const auto plans = AllPlans();
  driver_.ClearLog();
  for (uint64_t context : {2, 0}) {
    FakeDriver::SetContext(context);
    for (const auto& plan : plans) {
      FakeAddresses addresses(plan->problem());
      const Status status = plan->Launch(nullptr, addresses.args());
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find("current CUDA context"), std::string::npos)
          << status.ToString();
    }
  }
  FakeDriver::SetContext(1);
  EXPECT_TRUE(driver_.launches().empty());
}

TEST_F(CaptureTest, LaunchAllocatesNothing) {
  if (!testing::kCountsAllocations) GTEST_SKIP() << "the sanitizer's allocator cannot be counted";
  const auto plans = AllPlans();
  std::vector<FakeAddresses> addresses;
  for (const auto& plan : plans) addresses.emplace_back(plan->problem());
  driver_.Record(false);
  const uint64_t calls = driver_.call_count(), before = testing::Allocations();
  bool ok = true;
  for (size_t i = 0; i < plans.size(); ++i) {
    ok &= plans[i]->Launch(nullptr, addresses[i].args()).ok();
  }
  const uint64_t after = testing::Allocations();
  EXPECT_TRUE(ok);
  EXPECT_EQ(after - before, 0u);
  EXPECT_EQ(driver_.call_count() - calls, 7u + plans.size());
  std::vector<int> seen(plans.size());
  EXPECT_GT(testing::Allocations(), after) << "the counter counts" << seen.size();
}

TEST_F(CaptureTest, PlansAreMadeBesideACaptureInGlobalMode) {
  driver_.SetCapturing(true);
  const auto plans = AllPlans();
  EXPECT_EQ(plans.size(), 4u);
  // And the thread has its own mode back: a load of its own would be refused.
  CUlibrary library = nullptr;
  EXPECT_EQ(driver_.api()->LibraryLoadData(&library, "", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_F(CaptureTest, AThousandExecutablesOverFiftyShapesReachAPlateau) {
  driver_.Record(false);
  auto one_executable = [&](int number) {
    std::vector<std::shared_ptr<const Plan>> plans;
    for (int shape = 0; shape < 50; ++shape) {
      const std::string text = "f32[" + std::to_string(1 + (shape + number) % 50) + ",64]";
      auto plan = runtime_.MakePlan(bundle_, ProblemOf(*bundle_, "run.scale", {text}), kCuda);
      ASSERT_TRUE(plan.ok());
      plans.push_back(*plan);
    }
  };
  for (int i = 0; i < 100; ++i) one_executable(i);
  const size_t early = mallinfo2().uordblks;
  for (int i = 100; i < 1000; ++i) one_executable(i);
  const size_t late = mallinfo2().uordblks;
  EXPECT_LT(late, early + 16384);
  EXPECT_EQ(runtime_.stats().objects_loaded, 2u);
}

TEST_F(CaptureTest, EverNewShapesDoNotPileUp) {
  driver_.Record(false);
  auto shapes = [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const std::string text = "f32[" + std::to_string(i) + ",64]";
      ASSERT_TRUE(runtime_.MakePlan(bundle_, ProblemOf(*bundle_, "run.scale", {text}), kCuda).ok());
    }
  };
  shapes(1, 8000);  // past the log's limit
  runtime_.Trim();
  const size_t early = mallinfo2().uordblks;
  shapes(8000, 12000);
  runtime_.Trim();
  EXPECT_LT(mallinfo2().uordblks, early + 65536);
}

}  // namespace
}  // namespace kbundle
