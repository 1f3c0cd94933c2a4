// Promise: a plan launches exactly what the bundle says for the problem, and equal requests share
// it.
#include "support/plan_fixture.h"

namespace kbundle {
namespace {

using testing::FakeAddresses;
using testing::FakeDriver;
using testing::kCuda;
using testing::ProblemOf;

class PlanTest : public testing::PlanFixture {};

TEST_F(PlanTest, LaunchGivesTheKernelItsGeometryAndArguments) {
  const auto plan = MakePlan(scale_);
  FakeAddresses addresses(scale_);
  auto* stream = reinterpret_cast<CUstream>(0x77);
  ASSERT_EQ(plan->Launch(stream, addresses.args()).ToString(), "OK");
  ASSERT_EQ(driver_.launches().size(), 1u);
  const FakeDriver::Launch launch = driver_.launches()[0];
  EXPECT_EQ(launch.symbol, "vec");
  EXPECT_EQ(launch.grid, (std::array<unsigned, 3>{42, 1, 1}));
  EXPECT_EQ(launch.block, (std::array<unsigned, 3>{256, 1, 1}));
  EXPECT_EQ(launch.stream, stream);
  EXPECT_FALSE(launch.programmatic);
  EXPECT_EQ(launch.Parameter<void*>(0), addresses.results[0]);
  EXPECT_EQ(launch.Parameter<void*>(1), addresses.operands[0]);
  EXPECT_EQ(launch.Parameter<float>(2), 0.5f);
  EXPECT_EQ(launch.Parameter<int64_t>(3), 42);
  EXPECT_EQ(launch.Parameter<int32_t>(4), 64);
}

TEST_F(PlanTest, AnArgumentMayPointInsideATensor) {
  const Problem problem = ProblemOf(*bundle_, "run.inside", {"f32[3,4]"});
  const auto plan = MakePlan(problem);
  FakeAddresses addresses(problem);
  ASSERT_EQ(plan->Launch(nullptr, addresses.args()).ToString(), "OK");
  const FakeDriver::Launch launch = driver_.launches().at(0);
  const auto inside = [](void* tensor, int64_t elements) {
    return static_cast<void*>(static_cast<float*>(tensor) + elements);
  };
  EXPECT_EQ(launch.Parameter<void*>(0), inside(addresses.results[0], 3));
  EXPECT_EQ(launch.Parameter<void*>(1), inside(addresses.operands[0], 3));
  EXPECT_EQ(launch.Parameter<void*>(2), inside(addresses.workspace, 2));
  EXPECT_EQ(launch.Parameter<void*>(3), addresses.operands[0]);
}

TEST_F(PlanTest, AnArgumentThatPointsOutsideItsTensorIsRefusedByName) {
  for (const auto& [operand, words] :
       {std::pair("f32[3,1]", "argument y at rows is element 3 of a tensor of 3"),
        std::pair("f32[1,2]", "argument ws:partial at 2 is element 2 of a tensor of 2")}) {
    const Status status = WhyNot(ProblemOf(*bundle_, "run.inside", {operand}));
    EXPECT_NE(status.message().find(words), std::string::npos) << status.ToString();
  }
  EXPECT_TRUE(WhyNot(ProblemOf(*bundle_, "run.inside", {"f32[0,4]"})).ok());  // nothing to point at
}

TEST_F(PlanTest, TritonKernelsGetTheirOwnThreadsSharedMemoryAndNullScratch) {
  const Problem problem = ProblemOf(*bundle_, "run.triton", {"f32[6,7,64]"});
  const auto plan = MakePlan(problem);
  FakeAddresses addresses(problem);
  ASSERT_EQ(plan->Launch(nullptr, addresses.args()).ToString(), "OK");
  ASSERT_EQ(driver_.launches().size(), 1u);
  const FakeDriver::Launch launch = driver_.launches()[0];
  EXPECT_EQ(launch.grid, (std::array<unsigned, 3>{42, 1, 1}));
  EXPECT_EQ(launch.block, (std::array<unsigned, 3>{testing::kTritonThreads, 1, 1}));
  EXPECT_EQ(launch.shared, testing::kTritonShared);
  EXPECT_EQ(driver_.function_attribute("triton", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
            static_cast<int>(testing::kTritonShared));
  EXPECT_EQ(launch.Parameter<void*>(0), addresses.results[0]);
  EXPECT_EQ(launch.Parameter<void*>(1), addresses.operands[0]);
  EXPECT_EQ(launch.Parameter<int32_t>(2), 64);
  EXPECT_EQ(launch.Parameter<void*>(3), nullptr);
  EXPECT_EQ(launch.Parameter<void*>(4), nullptr);
}

TEST_F(PlanTest, TheCurrentDeviceIsThatOfTheCurrentContext) {
  const auto device = runtime_.CurrentDevice(kCuda);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device->ToString(), "sm_90");
  EXPECT_EQ(device->name, "Fake H200");
  EXPECT_EQ(device->sm_count, 132);
}

TEST_F(PlanTest, EqualRequestsShareOnePlanAndOneCodeObject) {
  const auto first = MakePlan(scale_);
  const int loads = driver_.CountOf("LibraryLoadData");
  for (int i = 0; i < 95; ++i) EXPECT_EQ(MakePlan(scale_), first);
  EXPECT_EQ(driver_.CountOf("LibraryLoadData"), loads);
  EXPECT_EQ(runtime_.stats().plans_made, 1u);
  EXPECT_EQ(runtime_.stats().plans_shared, 95u);
  const auto other = MakePlan(ProblemOf(*bundle_, "run.scale", {"f32[5,64]"}));
  EXPECT_NE(other, first);
  EXPECT_EQ(driver_.CountOf("LibraryLoadData"), loads) << "other plans share the code objects";
}

TEST_F(PlanTest, PlansDieWithTheirUsersAndCodeObjectsStay) {
  std::weak_ptr<const Plan> plan = MakePlan(scale_);
  EXPECT_TRUE(plan.expired());
  EXPECT_NE(MakePlan(scale_), nullptr);
  EXPECT_EQ(runtime_.stats().plans_made, 2u);
  EXPECT_EQ(runtime_.stats().objects_loaded, 2u);
  EXPECT_EQ(driver_.CountOf("LibraryUnload"), 0);
}

TEST_F(PlanTest, EachContextLoadsItsOwnCode) {
  const auto first = MakePlan(scale_);
  FakeDriver::SetContext(2);
  const auto second = MakePlan(scale_);
  EXPECT_NE(first, second);
  EXPECT_EQ(driver_.libraries_alive(), 4);
}

TEST_F(PlanTest, AThreadWithoutContextIsToldToMakeOneCurrent) {
  FakeDriver::SetContext(0);
  const Status status = WhyNot(scale_);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("cuCtxSetCurrent"), std::string::npos) << status.ToString();
}

TEST_F(PlanTest, StepsRunInOrderWithTheirWorkspace) {
  const Problem problem = ProblemOf(*bundle_, "run.steps", {"f32[3,64]"});
  const auto plan = MakePlan(problem);
  EXPECT_EQ(Chosen(*plan), "run.steps/roomy@sm_90a");
  EXPECT_EQ(plan->workspace_bytes(), 64 * 4096);
  driver_.ClearLog();
  FakeAddresses addresses(problem);
  ASSERT_TRUE(plan->Launch(nullptr, addresses.args()).ok());
  EXPECT_EQ(driver_.calls(), (std::vector<std::string>{"CtxGetId", "MemsetD8Async",
                                                       "LaunchKernelEx", "MemcpyDtoDAsync"}));
  EXPECT_EQ(driver_.launches()[0].Parameter<void*>(0), addresses.workspace);
}

TEST_F(PlanTest, TheFirstVariantWhoseWorkspaceFitsIsTaken) {
  const Problem problem = ProblemOf(*bundle_, "run.steps", {"f32[3,64]"});
  const auto plan = MakePlan(problem, 1000);
  EXPECT_EQ(Chosen(*plan), "run.steps/thrifty@sm_90a");
  EXPECT_EQ(plan->workspace_bytes(), 256);
  const auto stats = runtime_.stats();
  ASSERT_EQ(stats.chosen.size(), 1u);
  EXPECT_NE(stats.chosen[0].reason.find("needs a workspace of 262144 bytes, given are 1000"),
            std::string::npos)
      << stats.chosen[0].reason;
}

TEST_F(PlanTest, AWorkspaceTooSmallForEveryVariantNamesTheSmallestNeed) {
  const Status status = WhyNot(ProblemOf(*bundle_, "run.steps", {"f32[3,64]"}), 255);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("255 bytes, the smallest need is 256"), std::string::npos)
      << status.ToString();
}

TEST_F(PlanTest, AnEmptyGridLaunchesNothing) {
  const Problem problem = ProblemOf(*bundle_, "run.scale", {"f32[0,64]"});
  const auto plan = MakePlan(problem);
  FakeAddresses addresses(problem);
  addresses.operands[0] = addresses.results[0] = nullptr;  // nothing is there
  EXPECT_TRUE(plan->Launch(nullptr, addresses.args()).ok());
  EXPECT_TRUE(driver_.launches().empty());
}

TEST_F(PlanTest, AVariantBeyondTheGridLimitIsPassedOver) {
  EXPECT_EQ(Chosen(*MakePlan(ProblemOf(*bundle_, "run.wide", {"f32[65535,8]"}))),
            "run.wide/tall@sm_90a");
  EXPECT_EQ(Chosen(*MakePlan(ProblemOf(*bundle_, "run.wide", {"f32[65536,8]"}))),
            "run.wide/flat@sm_90a");
  ASSERT_TRUE(Policy::Global().Deny(*bundle_, "run.wide/flat").ok());
  const Status status = WhyNot(ProblemOf(*bundle_, "run.wide", {"f32[65536,8]"}));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("grid.y is 65536, sm_90 allows at most 65535"), std::string::npos)
      << status.ToString();
}

TEST_F(PlanTest, TensorMapClusterSharedMemoryAndProgrammaticLaunchArrive) {
  const Problem problem = ProblemOf(*bundle_, "run.tiles", {"f32[5,64]"});
  const auto plan = MakePlan(problem);
  driver_.ClearLog();
  FakeAddresses addresses(problem);
  ASSERT_EQ(plan->Launch(nullptr, addresses.args()).ToString(), "OK");
  const FakeDriver::Launch launch = driver_.launches().at(0);
  EXPECT_EQ(launch.cluster, (std::array<unsigned, 3>{16, 1, 1}));
  EXPECT_EQ(launch.shared, 100064u);
  EXPECT_TRUE(launch.programmatic);
  const auto map = launch.Parameter<std::array<uint64_t, 16>>(0);
  EXPECT_EQ(map[0], reinterpret_cast<uintptr_t>(addresses.operands[0]));
  EXPECT_EQ(map[1] & 0xffffffff, 2u) << "rank";
  EXPECT_EQ(map[2], 64u) << "innermost dim";
  EXPECT_EQ(map[4], uint64_t{CU_TENSOR_MAP_SWIZZLE_128B});
  EXPECT_EQ(launch.Parameter<void*>(1), addresses.results[0]);
  EXPECT_EQ(driver_.CountOf("TensorMapEncodeTiled"), 0) << "encoded when the plan was made";
  // Tensor maps cannot have unaligned addresses.
  EXPECT_FALSE(plan->Launch(nullptr, FakeAddresses(problem, 4).args()).ok());
}

TEST_F(PlanTest, CodeThatCannotWaitIsNotStartedEarly) {
  const Problem problem = ProblemOf(*bundle_, "run.portable", {"f32[5,64]"});
  const auto plan = MakePlan(problem);
  driver_.ClearLog();
  ASSERT_EQ(plan->Launch(nullptr, FakeAddresses(problem).args()).ToString(), "OK");
  EXPECT_FALSE(driver_.launches().at(0).programmatic) << "PTX of 8.0 on a 9.0 device";
}

TEST_F(PlanTest, FunctionAttributesAreRaisedNeverLowered) {
  constexpr auto kShared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const auto large = MakePlan(ProblemOf(*bundle_, "run.tiles", {"f32[5,256]"}));
  EXPECT_EQ(driver_.function_attribute("tma", kShared), 100256);
  const auto small = MakePlan(ProblemOf(*bundle_, "run.tiles", {"f32[5,64]"}));
  EXPECT_EQ(driver_.function_attribute("tma", kShared), 100256);
  EXPECT_EQ(driver_.function_attribute("tma", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
            1);
}

TEST_F(PlanTest, SharedMemoryBeyondTheDeviceNamesBothNumbers) {
  const Status status = WhyNot(ProblemOf(*bundle_, "run.tiles", {"f32[5,200000]"}));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("300000 + 0 bytes"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("232448"), std::string::npos) << status.ToString();
}

TEST_F(PlanTest, ClustersOnADeviceWithoutThemAreRefused) {
  driver_.SetAttribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0);
  const Status status = WhyNot(ProblemOf(*bundle_, "run.tiles", {"f32[5,64]"}));
  EXPECT_NE(status.message().find("blocks in a cluster is 16"), std::string::npos)
      << status.ToString();
}

TEST_F(PlanTest, APolicyChangesLaterPlansOnly) {
  const auto before = MakePlan(scale_);
  ASSERT_TRUE(Policy::Global().Force(*bundle_, "run.scale/any").ok());
  const auto after = MakePlan(scale_);
  EXPECT_EQ(Chosen(*before), "run.scale/vec@sm_90a");
  EXPECT_EQ(Chosen(*after), "run.scale/any@sm_90a");
  EXPECT_EQ(after->choice(), Choice::kForced);
}

TEST_F(PlanTest, StatsSayWhatWasChosenAndWhy) {
  const auto plan = MakePlan(scale_);
  const auto stats = runtime_.stats();
  ASSERT_EQ(stats.chosen.size(), 1u);
  EXPECT_EQ(stats.chosen[0].bundle, "run");
  EXPECT_EQ(stats.chosen[0].op, "run.scale");
  EXPECT_EQ(stats.chosen[0].variant, "run.scale/vec@sm_90a");
  EXPECT_EQ(stats.chosen[0].device, "sm_90");
  EXPECT_EQ(stats.chosen[0].reason, "first legal in manifest order");
  EXPECT_EQ(stats.chosen[0].count, 1u);
}

}  // namespace
}  // namespace kbundle
