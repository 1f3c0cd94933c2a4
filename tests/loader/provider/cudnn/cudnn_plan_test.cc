// Promise: an execution plan of cuDNN runs only where it was made for, with exactly what its graph
// wants, its kernels loaded before the first launch, and never in two threads at once.
#include "loader/provider/cudnn/cudnn_plan.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <set>
#include <thread>

#include "support/fake_cudnn.h"
#include "support/fake_driver.h"

namespace kbundle {
namespace {

using testing::FakeCudnn;
using testing::FakeDriver;

constexpr uint32_t kNegativeInfinity = 0xff800000;

// Uid 1 and 2: operand and result; 3: the step's scalar; 10: a part of the workspace; 11: the
// graph's own scalar.
ExecutionPlanBlob SampleBlob() {
  ExecutionPlanBlob blob;
  blob.cudnn_version = 91900;
  blob.workspace_bytes = 1024;
  blob.own_offset = 256;
  blob.uids = {1, 2, 3, 10, 11};
  blob.parts = {{10, 128}};
  blob.scalars = {{11, DType::kF32, kNegativeInfinity}};
  blob.device = {{"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
                 {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024}};
  blob.plan = "{\"GPUProfile\":{\"driverVer\":12080,\"l2\":1},\"engine\":\"driverVer is no key\"}";
  return blob;
}

// y, x, scale = 0.5; its part of the workspace begins at 512.
ResolvedStep SampleStep() {
  ResolvedStep step;
  step.kind = StepKind::kOwn;
  step.bytes = 1024;
  step.workspace = {Pointer::From::kWorkspace, 512};
  ResolvedArg x, y, scale;
  x.pointer = {Pointer::From::kOperand, 0};
  y.pointer = {Pointer::From::kResult, 0};
  scale.kind = ResolvedArg::Kind::kConstant;
  scale.index = 8;
  step.args = {x, y, scale};
  step.constants.resize(16);
  const float value = 0.5f;
  std::memcpy(&step.constants[8], &value, sizeof(value));
  return step;
}

CUstream StreamAt(uintptr_t address) { return reinterpret_cast<CUstream>(address); }

class CudnnPlanTest : public ::testing::Test {
 protected:
  CudnnPlanTest() {
    device_.device.kind = Device::Kind::kCuda;
    device_.device.major = 9;
  }

  Result<std::shared_ptr<CudnnPlan>> Load(ExecutionPlanBlob blob = SampleBlob()) {
    return CudnnPlan::Load(*driver_.api(), handles_, device_, std::move(blob));
  }
  // A plan and its launch, which must both come to be.
  void MakeLaunch() {
    auto plan = Load();
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    plan_ = std::move(*plan);
    auto launch = CudnnLaunch::Make(plan_, SampleStep());
    ASSERT_TRUE(launch.ok()) << launch.status().ToString();
    launch_ = std::move(*launch);
  }
  LaunchArgs Args() {
    LaunchArgs args{};
    args.operands = operands_;
    args.results = results_;
    args.workspace = workspace_;
    return args;
  }
  Status Launch(uintptr_t stream = 0x10) { return launch_.Enqueue(StreamAt(stream), Args()); }

  FakeDriver driver_;
  FakeCudnn cudnn_;
  CudnnHandles handles_{*driver_.api(), cudnn_.api()};
  CudaDevice device_;
  std::shared_ptr<CudnnPlan> plan_;
  CudnnLaunch launch_;
  void* operands_[1] = {reinterpret_cast<void*>(0x10000)};
  void* results_[1] = {reinterpret_cast<void*>(0x20000)};
  void* workspace_ = reinterpret_cast<void*>(0x30000);
};

void ExpectWords(const Status& status, StatusCode code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << "\n" << status.ToString();
  }
}

TEST_F(CudnnPlanTest, AnotherVersionIsRefusedWithBothAndWhatToInstall) {
  cudnn_.version = 92201;
  ExpectWords(Load().status(), StatusCode::kFailedPrecondition,
              {"made by cuDNN 9.19.0", "has 9.22.1", "/nowhere/libcudnn.so.9",
               "install nvidia-cudnn-cu13==9.19.0.*"});
  EXPECT_EQ(cudnn_.handles(), 0);
}

TEST_F(CudnnPlanTest, AnotherDeviceIsRefusedWithTheFieldAndBothValues) {
  driver_.SetAttribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 114);
  ExpectWords(Load().status(), StatusCode::kFailedPrecondition,
              {"multiProcessorCount 132", "sm_90 has 114", "kbundle profile"});
  EXPECT_EQ(cudnn_.handles(), 0);
}

TEST_F(CudnnPlanTest, TheLiveDriversVersionIsAllThatChangesInThePlan) {
  ASSERT_TRUE(Load().ok());
  EXPECT_EQ(cudnn_.texts(),
            (std::vector<std::string>{"{\"GPUProfile\":{\"driverVer\":13000,\"l2\":1},\"engine\":"
                                      "\"driverVer is no key\"}"}));
  ExecutionPlanBlob blob = SampleBlob();
  blob.plan = "{\"GPUProfile\":{}}";
  ExpectWords(Load(blob).status(), StatusCode::kDataLoss, {"does not say for which driver"});
}

TEST_F(CudnnPlanTest, APlanThatCudnnRefusesIsAnErrorInItsWordsAndLeavesNothing) {
  cudnn_.fail_finalize = 3000;
  ExpectWords(Load().status(), StatusCode::kFailedPrecondition,
              {"loading an execution plan: cuDNN 9.19.0 answers 3000: made to fail"});
  EXPECT_EQ(cudnn_.alive(), 1) << "more than the context's handle";
  cudnn_.fail_finalize = 4003;
  ExpectWords(Load().status(), StatusCode::kResourceExhausted, {"answers 4003"});
}

TEST_F(CudnnPlanTest, PartsOfTwoReleasesAreAnErrorThatSaysWhatToDo) {
  cudnn_.fail_finalize = 1002;
  ExpectWords(Load().status(), StatusCode::kFailedPrecondition,
              {"answers 1002", "must be of one release", "/nowhere/libcudnn.so.9",
               "first in LD_LIBRARY_PATH"});
}

TEST_F(CudnnPlanTest, ItsKernelsAreLoadedOnceByACaptureThatIsThrownAway) {
  std::vector<std::string> during;
  cudnn_.on_execute = [&](const FakeCudnn::Run&) { during = driver_.calls(); };
  MakeLaunch();
  ASSERT_EQ(cudnn_.runs().size(), 1u);
  EXPECT_EQ(during.back(), "StreamBeginCapture");
  const std::vector<std::string> calls = driver_.calls();
  EXPECT_EQ(std::vector<std::string>(calls.end() - 2, calls.end()),
            (std::vector<std::string>{"GraphDestroy", "StreamDestroy"}));
  EXPECT_EQ(cudnn_.runs()[0].uids, SampleBlob().uids);
  const std::vector<void*> given = cudnn_.runs()[0].pointers;
  EXPECT_EQ(std::set<void*>(given.begin(), given.end()).size(), 5u) << "two tensors at one address";
  ASSERT_TRUE(CudnnLaunch::Make(plan_, SampleStep()).ok());
  EXPECT_EQ(cudnn_.runs().size(), 1u) << "touched twice";
}

TEST_F(CudnnPlanTest, ACaptureThatFailsIsAnErrorAndTriedAgain) {
  auto plan = Load();
  ASSERT_TRUE(plan.ok());
  driver_.FailAll("StreamBeginCapture", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(CudnnLaunch::Make(*plan, SampleStep()).ok());
  EXPECT_EQ(driver_.CountOf("StreamDestroy"), 1);
  driver_.FailAll("StreamBeginCapture", CUDA_SUCCESS);
  cudnn_.fail_execute = 5000;
  EXPECT_FALSE(CudnnLaunch::Make(*plan, SampleStep()).ok());
  EXPECT_EQ(driver_.CountOf("GraphDestroy"), 1);
  cudnn_.fail_execute = 0;
  EXPECT_TRUE(CudnnLaunch::Make(*plan, SampleStep()).ok());
  EXPECT_EQ(cudnn_.runs().size(), 2u);
  EXPECT_EQ(driver_.CountOf("StreamDestroy"), 3);
}

TEST_F(CudnnPlanTest, ALaunchGivesExactlyThePlansUidsWithTheirAddresses) {
  MakeLaunch();
  float scale = 0;
  uint32_t fixed = 0;
  cudnn_.on_execute = [&](const FakeCudnn::Run& run) {
    std::memcpy(&scale, run.Of(3), sizeof(scale));
    std::memcpy(&fixed, run.Of(11), sizeof(fixed));
  };
  ASSERT_EQ(Launch(0x77).ToString(), "OK");
  const FakeCudnn::Run run = cudnn_.runs().back();
  EXPECT_EQ(run.uids, SampleBlob().uids);
  EXPECT_EQ(run.stream, StreamAt(0x77));
  EXPECT_EQ(run.Of(1), operands_[0]);
  EXPECT_EQ(run.Of(2), results_[0]);
  EXPECT_EQ(scale, 0.5f);
  EXPECT_EQ(run.Of(10), reinterpret_cast<void*>(0x30000 + 512 + 128));
  EXPECT_EQ(fixed, kNegativeInfinity);
  EXPECT_EQ(run.workspace, reinterpret_cast<void*>(0x30000 + 512 + 256));
}

TEST_F(CudnnPlanTest, ATensorMayBeAPlaceInsideAnOperandOrResult) {
  auto plan = Load();
  ASSERT_TRUE(plan.ok());
  ResolvedStep step = SampleStep();
  step.args[0].pointer.offset = 48;
  step.args[1].pointer.offset = 64;
  auto launch = CudnnLaunch::Make(*plan, step);
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  ASSERT_TRUE(launch->Enqueue(StreamAt(0x10), Args()).ok());
  EXPECT_EQ(cudnn_.runs().back().Of(1), static_cast<char*>(operands_[0]) + 48);
  EXPECT_EQ(cudnn_.runs().back().Of(2), static_cast<char*>(results_[0]) + 64);
}

TEST_F(CudnnPlanTest, APackIsMadeAnewOnlyForOtherAddresses) {
  MakeLaunch();
  ASSERT_TRUE(Launch().ok());
  const int before = cudnn_.packs();
  ASSERT_TRUE(Launch(0x20).ok());
  EXPECT_EQ(cudnn_.packs(), before);
  operands_[0] = reinterpret_cast<void*>(0x50000);
  ASSERT_TRUE(Launch().ok());
  EXPECT_EQ(cudnn_.packs(), before + 1);
  EXPECT_EQ(cudnn_.runs().back().Of(1), operands_[0]);
  workspace_ = reinterpret_cast<void*>(0x60000);
  ASSERT_TRUE(Launch().ok());
  EXPECT_EQ(cudnn_.runs().back().workspace, reinterpret_cast<void*>(0x60000 + 512 + 256));
  EXPECT_EQ(cudnn_.alive(), 3) << "handle, plan, pack";
}

TEST_F(CudnnPlanTest, WhatTheStepHasAndThePlanDoesNotWantIsNotGiven) {
  ExecutionPlanBlob blob = SampleBlob();
  blob.uids = {2, 10, 11};
  auto plan = Load(blob);
  ASSERT_TRUE(plan.ok());
  auto launch = CudnnLaunch::Make(*plan, SampleStep());
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  ASSERT_TRUE(launch->Enqueue(nullptr, Args()).ok());
  EXPECT_EQ(cudnn_.runs().back().uids, blob.uids);
}

TEST_F(CudnnPlanTest, AUidThatNobodyGivesIsADamagedBundle) {
  ExecutionPlanBlob blob = SampleBlob();
  blob.uids.push_back(12);
  auto plan = Load(blob);
  ASSERT_TRUE(plan.ok());
  ExpectWords(CudnnLaunch::Make(*plan, SampleStep()).status(), StatusCode::kDataLoss,
              {"wants a tensor 12", "rebuild the bundle"});
  plan = Load();
  ResolvedStep step = SampleStep();
  step.args[0].pointer = {};  // an optional operand that is absent
  ExpectWords(CudnnLaunch::Make(*plan, step).status(), StatusCode::kDataLoss, {"wants a tensor 1"});
}

TEST_F(CudnnPlanTest, APlanThatTakesMoreWorkspaceThanTheIndexSaysIsADamagedBundle) {
  auto plan = Load();
  ASSERT_TRUE(plan.ok());
  ResolvedStep step = SampleStep();
  step.bytes = 768;
  ExpectWords(CudnnLaunch::Make(*plan, step).status(), StatusCode::kDataLoss,
              {"takes 1024 bytes of workspace", "index has 768"});
}

TEST_F(CudnnPlanTest, TheStreamIsSetOnlyWhenItChanges) {
  MakeLaunch();
  const int before = cudnn_.streams_set();
  for (uintptr_t stream : {0x10, 0x10, 0x20, 0x20, 0x20, 0x10}) ASSERT_TRUE(Launch(stream).ok());
  EXPECT_EQ(cudnn_.streams_set() - before, 3);
  const auto runs = cudnn_.runs();
  for (size_t i = 1; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].stream, StreamAt(i == 3 || i == 4 || i == 5 ? 0x20 : 0x10)) << i;
  }
}

TEST_F(CudnnPlanTest, AStreamThatHasTheCapturesHandleIsSetAnew) {
  MakeLaunch();
  const CUstream capture = cudnn_.runs().at(0).stream;
  const int before = cudnn_.streams_set();
  ASSERT_TRUE(launch_.Enqueue(capture, Args()).ok());
  EXPECT_EQ(cudnn_.streams_set() - before, 1);
}

TEST_F(CudnnPlanTest, PlansOfOneContextShareItsHandles) {
  MakeLaunch();
  auto other = Load();
  ASSERT_TRUE(other.ok());
  auto launch = CudnnLaunch::Make(*other, SampleStep());
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  ASSERT_TRUE(launch->Enqueue(StreamAt(0x10), Args()).ok());
  ASSERT_TRUE(Launch(0x10).ok());
  EXPECT_EQ(cudnn_.handles(), 1);
  EXPECT_NE(cudnn_.runs()[2].plan, cudnn_.runs()[3].plan);
}

TEST_F(CudnnPlanTest, AFailingRunIsAnErrorAndNothingStaysTaken) {
  MakeLaunch();
  cudnn_.fail_execute = 5003;
  for (int i = 0; i < 100; ++i) {
    ExpectWords(Launch(), StatusCode::kFailedPrecondition,
                {"running an execution plan: cuDNN 9.19.0 answers 5003: made to fail"});
  }
  cudnn_.fail_execute = 0;
  EXPECT_TRUE(Launch().ok());
  EXPECT_EQ(cudnn_.handles(), 1);
}

TEST_F(CudnnPlanTest, TwoThreadsHaveAHandleAndAPlanEachAndLaterLaunchesReuseThem) {
  MakeLaunch();
  std::mutex mutex;
  std::condition_variable both;
  int inside = 0;
  cudnn_.on_execute = [&](const FakeCudnn::Run&) {
    std::unique_lock lock(mutex);
    ++inside;
    both.notify_all();
    both.wait_for(lock, std::chrono::seconds(20), [&] { return inside >= 2; });
  };
  std::thread other([&] { EXPECT_TRUE(Launch(0x20).ok()); });
  EXPECT_TRUE(Launch(0x10).ok());
  other.join();
  EXPECT_EQ(inside, 3) << "two launches, and the second plan's kernels being loaded";
  EXPECT_FALSE(cudnn_.shared());
  EXPECT_EQ(cudnn_.handles(), 2);
  const auto runs = cudnn_.runs();
  EXPECT_NE(runs[1].plan, runs[2].plan);
  cudnn_.on_execute = nullptr;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Launch().ok());
  EXPECT_EQ(cudnn_.handles(), 2);
}

TEST_F(CudnnPlanTest, APlanThatALaunchMustMakeIsLoadedOutsideOfCaptures) {
  MakeLaunch();
  const int before = driver_.CountOf("ThreadExchangeStreamCaptureMode");
  std::vector<std::string> during;
  cudnn_.on_execute = [&](const FakeCudnn::Run& outer) {
    if (outer.stream != StreamAt(0x10)) return;
    EXPECT_TRUE(Launch(0x20).ok());
    during = driver_.calls();
  };
  ASSERT_TRUE(Launch(0x10).ok());
  // In and out around the second handle, and around the second plan and its capture.
  EXPECT_EQ(driver_.CountOf("ThreadExchangeStreamCaptureMode") - before, 4);
  EXPECT_EQ(driver_.CountOf("StreamBeginCapture"), 2);
  EXPECT_EQ(during.back(), "ThreadExchangeStreamCaptureMode");
  EXPECT_EQ(cudnn_.runs().back().stream, StreamAt(0x20));
}

TEST_F(CudnnPlanTest, ManyThreadsNeverShareAHandleOrAPlan) {
  MakeLaunch();
  cudnn_.on_execute = [](const FakeCudnn::Run&) { std::this_thread::yield(); };
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (uintptr_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) failed += Launch(0x100 + t).ok() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_FALSE(cudnn_.shared());
  EXPECT_LE(cudnn_.handles(), 8);
  EXPECT_EQ(cudnn_.runs().size(), cudnn_.texts().size() + 8 * 200) << "once to load each plan";
}

TEST_F(CudnnPlanTest, PlansThatCouldNotBeMadeCostNoPlaceForLaterOnes) {
  MakeLaunch();
  cudnn_.on_execute = [&](const FakeCudnn::Run& outer) {
    if (outer.stream != StreamAt(0x10)) return;
    // The only plan is taken; a second one cannot be made, a hundred times, and then can.
    cudnn_.fail_finalize = 4003;
    for (int i = 0; i < 100; ++i) {
      ExpectWords(Launch(0x20), StatusCode::kResourceExhausted, {"answers 4003"});
    }
    cudnn_.fail_finalize = 0;
    EXPECT_EQ(Launch(0x20).ToString(), "OK");
  };
  EXPECT_TRUE(Launch(0x10).ok());
}

TEST_F(CudnnPlanTest, ItsEndDestroysAllThatItMade) {
  MakeLaunch();
  ASSERT_TRUE(Launch().ok());
  EXPECT_EQ(cudnn_.alive(), 3) << "handle, plan, pack";
  launch_ = CudnnLaunch();
  plan_.reset();
  EXPECT_EQ(cudnn_.alive(), 1) << "more than the context's handle";
}

}  // namespace
}  // namespace kbundle
