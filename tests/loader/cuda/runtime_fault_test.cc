// Promise: whatever the driver or the file does, the answer is an error value or a right plan,
// damaged bytes never reach the driver, and the next attempt works.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "kbundle/key.h"
#include "kbundle/runtime.h"
#include "loader/cuda/driver_symbols.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::FakeAddresses;
using testing::FakeDriver;
using testing::kCuda;
using testing::ProblemOf;
using testing::RunMaker;

// The launch of a right plan for run.scale.
void ExpectRightLaunch(const Plan& plan, FakeDriver& driver) {
  driver.ClearLog();
  FakeAddresses addresses(plan.problem());
  ASSERT_EQ(plan.Launch(nullptr, addresses.args()).ToString(), "OK");
  ASSERT_EQ(driver.launches().size(), 1u);
  EXPECT_EQ(driver.launches()[0].Parameter<int32_t>(4), 64);
  EXPECT_EQ(driver.launches()[0].Parameter<void*>(0), addresses.results[0]);
}

class FaultTest : public ::testing::Test {
 protected:
  testing::TempDir dir_;
  std::shared_ptr<const Bundle> bundle_ = RunMaker().Open(dir_ / "run.kb");
  FakeDriver driver_;
  Problem scale_ = ProblemOf(*bundle_, "run.scale", {"f32[6,7,64]"}, {{"scale", "0.5"}});

  uint64_t CallsOfOnePlan() {
    Runtime runtime(driver_.api());
    const uint64_t before = driver_.call_count();
    EXPECT_TRUE(runtime.MakePlan(bundle_, scale_, kCuda).ok());
    return driver_.call_count() - before;
  }
};

TEST_F(FaultTest, EveryDriverCallMayFailOnceAndTheNextAttemptWorks) {
  const uint64_t calls = CallsOfOnePlan();
  ASSERT_GT(calls, 30u);
  for (uint64_t n = 1; n <= calls; ++n) {
    Runtime runtime(driver_.api());
    driver_.FailCall(n);
    const auto failed = runtime.MakePlan(bundle_, scale_, kCuda);
    // The last call gives the thread its capture mode back; there is nothing left to refuse.
    EXPECT_EQ(failed.ok(), n == calls) << "call " << n << ": " << failed.status().ToString();
    driver_.FailCall(0);
    const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
    ASSERT_TRUE(plan.ok()) << "after call " << n << ": " << plan.status().ToString();
    ExpectRightLaunch(**plan, driver_);
    EXPECT_EQ((*plan)->variants().size(), 2u) << "call " << n;
  }
}

TEST_F(FaultTest, RunningOutOfMemoryGivesAnErrorOrARightPlan) {
  const uint64_t calls = CallsOfOnePlan();
  for (uint64_t n = 1; n <= calls; ++n) {
    Runtime runtime(driver_.api());
    driver_.FailCall(n, CUDA_ERROR_OUT_OF_MEMORY);
    const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
    if (plan.ok()) ExpectRightLaunch(**plan, driver_);
  }
}

TEST_F(FaultTest, AVariantThatDoesNotLoadIsPassedOverWithItsReason) {
  Runtime runtime(driver_.api());
  // The first load is that of "vec".
  bool first = true;
  driver_.OnCall([&](const std::string& name) {
    driver_.FailAll("LibraryLoadData", name == "LibraryLoadData" && std::exchange(first, false)
                                           ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                           : CUDA_SUCCESS);
  });
  const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*plan)->variants()[0]), "run.scale/any@sm_90a");
  EXPECT_NE(runtime.stats().chosen[0].reason.find("passed over: run.scale/vec@sm_90a: loading"),
            std::string::npos)
      << runtime.stats().chosen[0].reason;
}

TEST_F(FaultTest, AFailedLoadForUnalignedAddressesIsNotForgotten) {
  Runtime runtime(driver_.api());
  int loads = 0;  // "vec" first, for aligned addresses, then "any"
  driver_.OnCall([&](const std::string& name) {
    driver_.FailAll("LibraryLoadData", name == "LibraryLoadData" && ++loads == 2
                                           ? CUDA_ERROR_OUT_OF_MEMORY
                                           : CUDA_SUCCESS);
  });
  const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
  ASSERT_FALSE(plan.ok()) << "a plan without its unaligned half would be shared";
  EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted) << plan.status().ToString();
  EXPECT_TRUE(runtime.MakePlan(bundle_, scale_, kCuda).ok());
}

TEST_F(FaultTest, WhenNothingLoadsEveryReasonIsTold) {
  Runtime runtime(driver_.api());
  driver_.FailAll("LibraryLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU);
  const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kFailedPrecondition);
  for (const char* part :
       {"run.scale(x=f32[6,7,64]", "sm_90", "run.scale/vec@sm_90a: ", "run.scale/any@sm_90a: "}) {
    EXPECT_NE(plan.status().message().find(part), std::string::npos) << plan.status().ToString();
  }
}

TEST_F(FaultTest, ALaunchThatFailsSaysWhichAndTheNextOneWorks) {
  Runtime runtime(driver_.api());
  const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
  FakeAddresses addresses(scale_);
  driver_.FailCall(2, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);  // behind the look at the context
  const Status status = (*plan)->Launch(nullptr, addresses.args());
  EXPECT_NE(status.message().find("launching run.scale("), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("enqueueing kernel vec: "), std::string::npos);
  ExpectRightLaunch(**plan, driver_);
}

TEST_F(FaultTest, AStreamOfAnotherContextIsToldFromThePlansAndTheNextLaunchWorks) {
  Runtime runtime(driver_.api());
  const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
  FakeAddresses addresses(scale_);
  const auto of_device_1 = reinterpret_cast<CUstream>(0x20);
  const auto of_device_0 = reinterpret_cast<CUstream>(0x30);  // but of another context
  driver_.SetStreamContext(of_device_1, 2);
  driver_.SetStreamContext(of_device_0, 3);
  for (const bool capturing : {false, true}) {
    driver_.SetCapturing(capturing);
    const Status other = (*plan)->Launch(of_device_1, addresses.args());
    const Status same = (*plan)->Launch(of_device_0, addresses.args());
    driver_.SetCapturing(false);
    EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(other.message().find("the stream is of CUDA device 1 (Fake H200), the plan was made "
                                   "on CUDA device 0 (Fake H200): give a stream"),
              std::string::npos)
        << other.ToString();
    EXPECT_EQ(same.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(same.message().find("the stream is of another context of CUDA device 0 (Fake H200)"),
              std::string::npos)
        << same.ToString();
    ExpectRightLaunch(**plan, driver_);  // the plan's context is current again
  }
}

TEST_F(FaultTest, AFailureForTheRightStreamStaysWhatTheDriverSaid) {
  Runtime runtime(driver_.api());
  const auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
  FakeAddresses addresses(scale_);
  const auto stream = reinterpret_cast<CUstream>(0x20);
  driver_.SetStreamContext(stream, 2);
  for (const auto& [launched_on, silent] : {std::pair<CUstream, const char*>{nullptr, ""},
                                            {stream, "StreamGetCtx"},
                                            {stream, "CtxGetId"}}) {
    // From the launch on, so that the plan's own look at the context goes well.
    driver_.OnCall([&, silent = silent](const std::string& name) {
      if (name == "LaunchKernelEx") driver_.FailAll(silent, CUDA_ERROR_UNKNOWN);
    });
    driver_.FailAll("LaunchKernelEx", CUDA_ERROR_ILLEGAL_ADDRESS);
    const Status status = (*plan)->Launch(launched_on, addresses.args());
    driver_.OnCall(nullptr);
    driver_.FailAll("LaunchKernelEx", CUDA_SUCCESS);
    driver_.FailAll(silent, CUDA_SUCCESS);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_EQ(status.message().find("the stream is of"), std::string::npos) << status.ToString();
    ExpectRightLaunch(**plan, driver_);
  }
}

TEST(Damage, NeverReachesTheDriver) {
  testing::TempDir dir;
  const std::string bytes = RunMaker().Bytes();
  FakeDriver driver;
  testing::WriteFile(dir / "good.kb", bytes);
  std::set<uint64_t> good;
  {
    Runtime runtime(driver.api());
    const auto bundle = *Bundle::Open(dir / "good.kb");
    const Problem problem = ProblemOf(*bundle, "run.scale", {"f32[6,64]"});
    ASSERT_TRUE(runtime.MakePlan(bundle, problem, kCuda).ok());
    for (uint64_t hash : driver.image_hashes()) good.insert(hash);
    ASSERT_EQ(good.size(), 2u);
  }
  int refused = 0;
  std::fstream file(dir / "good.kb", std::ios::in | std::ios::out | std::ios::binary);
  auto put = [&](size_t byte, char value) { file.seekp(byte).put(value).flush(); };
  for (size_t byte = 0; byte < bytes.size(); ++byte) {
    if (byte > 0) put(byte - 1, bytes[byte - 1]);
    put(byte, static_cast<char>(bytes[byte] ^ (1 << byte % 8)));
    const auto bundle = Bundle::Open(dir / "good.kb");
    if (!bundle.ok()) continue;
    Runtime runtime(driver.api());
    const Problem problem = ProblemOf(**bundle, "run.scale", {"f32[6,64]"});
    const auto plan = runtime.MakePlan(*bundle, problem, kCuda);
    if (plan.ok()) {
      ExpectRightLaunch(**plan, driver);
    } else {
      ++refused;
      EXPECT_EQ(plan.status().code(), StatusCode::kDataLoss) << plan.status().ToString();
    }
  }
  EXPECT_GT(refused, 1000) << "the frames of both variants were damaged in turn";
  for (uint64_t hash : driver.image_hashes()) EXPECT_TRUE(good.count(hash)) << hash;
}

TEST(Damage, AFileRewrittenWhileOpenIsAnErrorValue) {
  testing::TempDir dir;
  const auto bundle = RunMaker().Open(dir / "run.kb");
  const std::string bytes = testing::ReadFile(dir / "run.kb");
  FakeDriver driver;
  Runtime runtime(driver.api());
  const Problem problem = ProblemOf(*bundle, "run.scale", {"f32[6,64]"});
  for (const std::string& other : {std::string(bytes.size(), 'x'), bytes.substr(0, 200)}) {
    testing::WriteFile(dir / "run.kb", other);
    const auto plan = runtime.MakePlan(bundle, problem, kCuda);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kDataLoss) << plan.status().ToString();
  }
  EXPECT_TRUE(driver.image_hashes().empty());
  testing::WriteFile(dir / "run.kb", bytes);
  EXPECT_TRUE(runtime.MakePlan(bundle, problem, kCuda).ok());
}

TEST(Contradiction, AKernelWithOtherParametersIsRefusedByName) {
  testing::TempDir dir;
  testing::BundleMaker maker = RunMaker();
  // run.scale's "vec" gets one argument more than its code object takes.
  for (auto& row : maker.index.templates) {
    if (row->name == "vec") maker.AddArg(*row, *row->steps[0], "y");
  }
  const auto bundle = maker.Open(dir / "run.kb");
  FakeDriver driver;
  Runtime runtime(driver.api());
  const auto plan = runtime.MakePlan(bundle, ProblemOf(*bundle, "run.scale", {"f32[6,64]"}), kCuda);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kInternal);
  EXPECT_NE(plan.status().message().find("kernel vec takes 5 parameters, the bundle gives it 6"),
            std::string::npos)
      << plan.status().ToString();
}

TEST_F(FaultTest, ThreadsThatRaceShareOnePlanAndTheLosersCopyIsDropped) {
  Runtime runtime(driver_.api());
  std::atomic<int> loading{0};
  driver_.OnCall([&](const std::string& name) {
    if (name != "LibraryLoadData") return;
    ++loading;
    while (loading < 2) std::this_thread::yield();  // both are past the look-up
  });
  std::shared_ptr<const Plan> plans[2];
  std::thread threads[2];
  for (int i = 0; i < 2; ++i) {
    threads[i] = std::thread([&, i] {
      auto plan = runtime.MakePlan(bundle_, scale_, kCuda);
      if (plan.ok()) plans[i] = *plan;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_NE(plans[0], nullptr);
  EXPECT_EQ(plans[0], plans[1]);
  EXPECT_GE(driver_.CountOf("LibraryUnload"), 1);
  EXPECT_EQ(driver_.libraries_alive(), 2);
  EXPECT_EQ(runtime.stats().objects_loaded, 2u);
}

TEST(DriverSymbols, AnOldDriverIsNamedWithWhatIsMissingAndNeeded) {
  FakeDriver driver;
  DriverApi api;
  const Status status = FillDriverApi(
      [&](const char* name) -> void* {
        if (std::string(name) == "cuFuncLoad") return nullptr;
        if (std::string(name) == "cuDriverGetVersion") {
          return reinterpret_cast<void*>(driver.api()->DriverGetVersion);
        }
        return reinterpret_cast<void*>(driver.api()->Init);
      },
      api);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const char* part : {"cuFuncLoad is missing", "CUDA 13.0", "R550 (CUDA 12.4)"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.ToString();
  }
}

TEST(DriverSymbols, AMachineWithoutDriverIsUnavailable) {
  const auto library = OpenDriverLibrary("libcuda-that-is-not-there.so.1");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(library.status().message().find("no NVIDIA driver"), std::string::npos);
}

}  // namespace
}  // namespace kbundle
