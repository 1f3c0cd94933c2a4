// Promise: the host provider computes, in parts or at once, and says so when it cannot.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::CompileHostSample;
using testing::HostMaker;
using testing::kHost;
using testing::ProblemOf;

const std::vector<uint8_t>& HostCode() {
  static const std::vector<uint8_t>& code = *[] {
    testing::TempDir dir;
    return new std::vector<uint8_t>(CompileHostSample(dir.path(), testing::SourceDir()));
  }();
  return code;
}

class HostTest : public ::testing::Test {
 protected:
  testing::TempDir dir_;
  std::shared_ptr<const Bundle> bundle_ = HostMaker(HostCode()).Open(dir_ / "host.kb");
  Runtime runtime_;

  std::shared_ptr<const Plan> MakePlan(const Problem& problem) {
    auto plan = runtime_.MakePlan(bundle_, problem, kHost);
    if (!plan.ok()) ADD_FAILURE() << plan.status().ToString();
    return plan.ok() ? *plan : nullptr;
  }
  // Runs y = 3 x over `x` and expects it right.
  void ExpectScaled(const Plan& plan, const HostExecutor* executor, size_t count) {
    std::vector<float> x(count), y(count, -1);
    std::iota(x.begin(), x.end(), 1.0f);
    void* operands[] = {x.data()};
    void* results[] = {y.data()};
    ASSERT_EQ(
        plan.Launch(const_cast<HostExecutor*>(executor), {operands, results, nullptr}).ToString(),
        "OK");
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], 3 * x[i]) << i;
  }
};

// Runs the chunks one after the other, the last first, and counts them.
struct Chunks {
  std::atomic<int> calls{0};
  HostExecutor executor{&Run, this};

  static void Run(void* state, int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t),
                  void* context) {
    for (int64_t end = count; end > 0; end -= std::min(grain, end)) {
      body(context, std::max<int64_t>(0, end - grain), end);
      ++static_cast<Chunks*>(state)->calls;
    }
  }
};

TEST_F(HostTest, TheCallingThreadDoesItAllWithoutAnExecutor) {
  const auto plan = MakePlan(ProblemOf(*bundle_, "host.scale", {"f32[7,5]"}, {{"scale", "3"}}));
  ExpectScaled(*plan, nullptr, 35);
}

TEST_F(HostTest, AnExecutorGetsTheRangeInGrains) {
  const auto plan = MakePlan(ProblemOf(*bundle_, "host.scale", {"f32[7,5]"}, {{"scale", "3"}}));
  Chunks chunks;
  ExpectScaled(*plan, &chunks.executor, 35);
  EXPECT_EQ(chunks.calls, 4) << "7 rows in grains of 2";
}

TEST_F(HostTest, ARangeOfOneGrainStaysOnTheThread) {
  const auto plan = MakePlan(ProblemOf(*bundle_, "host.scale", {"f32[2,5]"}, {{"scale", "3"}}));
  Chunks chunks;
  ExpectScaled(*plan, &chunks.executor, 10);
  EXPECT_EQ(chunks.calls, 0);
}

#ifdef __SSE__
// Promise: a kernel's bits do not depend on whose thread it runs on, and the thread keeps its rules.
TEST_F(HostTest, SubnormalNumbersStayOnThreadsThatFlushThem) {
  const auto plan = MakePlan(ProblemOf(*bundle_, "host.scale", {"f32[7,5]"}, {{"scale", "3"}}));
  Chunks chunks;
  std::vector<float> x(35, std::numeric_limits<float>::denorm_min()), y(35, -1);
  void* operands[] = {x.data()};
  void* results[] = {y.data()};
  const uint32_t before = _mm_getcsr(), flushing = before | 0x8040 | _MM_ROUND_UP;
  for (HostExecutor* executor : {static_cast<HostExecutor*>(nullptr), &chunks.executor}) {
    _mm_setcsr(flushing);
    const Status status = plan->Launch(executor, {operands, results, nullptr});
    const uint32_t after = _mm_getcsr();
    _mm_setcsr(before);
    ASSERT_EQ(status.ToString(), "OK");
    EXPECT_EQ(after & ~0x3fu, flushing & ~0x3fu);
    for (float one : y) ASSERT_EQ(one, 3 * std::numeric_limits<float>::denorm_min());
    std::fill(y.begin(), y.end(), -1.0f);
  }
}
#endif

TEST_F(HostTest, AnEmptyRangeCallsNothing) {
  const auto plan = MakePlan(ProblemOf(*bundle_, "host.scale", {"f32[0,5]"}));
  void* none[] = {nullptr};
  EXPECT_TRUE(plan->Launch(nullptr, {none, none, nullptr}).ok());
}

TEST_F(HostTest, LargeResultsInHugePagesAreRightToo) {
  const size_t count = 3 << 20;
  const auto plan =
      MakePlan(ProblemOf(*bundle_, "host.scale", {"f32[3,1048576]"}, {{"scale", "3"}}));
  ExpectScaled(*plan, nullptr, count);
}

TEST_F(HostTest, MemsetStepsFillTheResult) {
  const auto plan = MakePlan(ProblemOf(*bundle_, "host.fill", {"u8[9]"}));
  uint8_t like[9] = {}, y[10] = {};
  void* operands[] = {like};
  void* results[] = {y};
  ASSERT_TRUE(plan->Launch(nullptr, {operands, results, nullptr}).ok());
  EXPECT_EQ(std::count(y, y + 10, 1), 9);
}

TEST_F(HostTest, EqualProblemsShareOnePlanAndOneObject) {
  const Problem problem = ProblemOf(*bundle_, "host.scale", {"f32[7,5]"});
  const auto first = MakePlan(problem), second = MakePlan(problem);
  EXPECT_EQ(first, second);
  EXPECT_EQ(runtime_.stats().objects_loaded, 1u);
  EXPECT_EQ(runtime_.stats().chosen.at(0).device, HostDevice().ToString());
}

TEST_F(HostTest, BytesThatAreNoLibraryAreAnErrorValue) {
  const auto bundle = HostMaker(std::vector<uint8_t>(500, 7)).Open(dir_ / "noise.kb");
  auto plan = runtime_.MakePlan(bundle, ProblemOf(*bundle, "host.scale", {"f32[7,5]"}), kHost);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kUnavailable) << plan.status().ToString();
}

TEST_F(HostTest, ADamagedObjectIsNeverMapped) {
  std::string bytes = testing::ReadFile(dir_ / "host.kb");
  bytes[bytes.size() - 40] ^= 1;
  testing::WriteFile(dir_ / "host.kb", bytes);
  auto plan = runtime_.MakePlan(bundle_, ProblemOf(*bundle_, "host.scale", {"f32[7,5]"}), kHost);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kDataLoss) << plan.status().ToString();
}

}  // namespace
}  // namespace kbundle
