// Promise: the addresses of a launch pick the code that was made for their alignment; what a plan
// cannot serve is refused by name, before the driver hears of it.
#include "support/plan_fixture.h"

namespace kbundle {
namespace {

using testing::FakeAddresses;
using testing::kCuda;
using testing::ProblemOf;

class AddressesTest : public testing::PlanFixture {};

TEST_F(AddressesTest, AddressesPickTheVariantOfTheirAlignment) {
  const auto plan = MakePlan(scale_);
  ASSERT_EQ(plan->variants().size(), 2u);
  EXPECT_EQ(Chosen(*plan, 0), "run.scale/vec@sm_90a");
  EXPECT_EQ(Chosen(*plan, 1), "run.scale/any@sm_90a");
  ASSERT_TRUE(plan->Launch(nullptr, FakeAddresses(scale_, 0).args()).ok());
  ASSERT_TRUE(plan->Launch(nullptr, FakeAddresses(scale_, 4).args()).ok());
  EXPECT_EQ(driver_.launches()[0].symbol, "vec");
  EXPECT_EQ(driver_.launches()[1].symbol, "any");
}

TEST_F(AddressesTest, BothAlignmentsEnqueueTheSameKindsOfWork) {
  const auto plan = MakePlan(ProblemOf(*bundle_, "run.mixed", {"f32[3,64]"}));
  ASSERT_EQ(plan->variants().size(), 2u);
  EXPECT_EQ(Chosen(*plan, 0), "run.mixed/vec@sm_90a");
  EXPECT_EQ(Chosen(*plan, 1), "run.mixed/any@sm_90a") << "odd has a memset that vec has not";
}

TEST_F(AddressesTest, AnAddressBelowElementAlignmentIsRefused) {
  const auto plan = MakePlan(scale_);
  const Status status = plan->Launch(nullptr, FakeAddresses(scale_, 2).args());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("not a multiple of 4 bytes"), std::string::npos)
      << status.ToString();
  EXPECT_TRUE(driver_.launches().empty());
}

TEST_F(AddressesTest, WithoutAnUnalignedVariantTheErrorTellsTheAlignmentNeeded) {
  ASSERT_TRUE(Policy::Global().Deny(*bundle_, "run.scale/any").ok());
  const auto plan = MakePlan(scale_);
  EXPECT_EQ(plan->variants().size(), 1u);
  const Status status = plan->Launch(nullptr, FakeAddresses(scale_, 4).args());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("not a multiple of 16 bytes"), std::string::npos)
      << status.ToString();
}

TEST_F(AddressesTest, OneResolutionServesBothAlignmentsWhenNothingDependsOnIt) {
  ASSERT_TRUE(Policy::Global().Deny(*bundle_, "run.scale/vec").ok());
  const auto plan = MakePlan(scale_);
  EXPECT_EQ(plan->variants().size(), 1u);
  EXPECT_TRUE(plan->Launch(nullptr, FakeAddresses(scale_, 4).args()).ok());
}

TEST_F(AddressesTest, WhoPromisesSixteenBytesLoadsNoCodeForLess) {
  const auto plan = MakePromised(scale_, 16);
  EXPECT_EQ(plan->variants().size(), 1u);
  EXPECT_EQ(Chosen(*plan), "run.scale/vec@sm_90a");
  EXPECT_EQ(driver_.CountOf("LibraryLoadData"), 1);
  EXPECT_EQ(runtime_.stats().objects_loaded, 1u);
  EXPECT_TRUE(plan->Launch(nullptr, FakeAddresses(scale_, 0).args()).ok());
}

TEST_F(AddressesTest, ABrokenPromiseIsRefusedWithoutADriverCall) {
  const auto plan = MakePromised(scale_, 16);
  const uint64_t calls = driver_.call_count();
  const Status status = plan->Launch(nullptr, FakeAddresses(scale_, 24).args());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const char* part : {"run.scale", "x is at 0x10018", "a multiple of 8 bytes only",
                           "every address is a multiple of 16"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.ToString();
  }
  EXPECT_EQ(driver_.call_count(), calls) << "so it is legal inside a capture";
}

TEST_F(AddressesTest, APromiseOfMoreThanAnyCodeNeedsIsCheckedToo) {
  const auto plan = MakePromised(scale_, 64);
  EXPECT_EQ(plan->variants().size(), 1u);
  EXPECT_TRUE(plan->Launch(nullptr, FakeAddresses(scale_, 0).args()).ok());
  EXPECT_TRUE(plan->Launch(nullptr, FakeAddresses(scale_, 128).args()).ok());
  for (const uintptr_t offset : {16, 32, 4}) {
    const Status status = plan->Launch(nullptr, FakeAddresses(scale_, offset).args());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << offset;
    EXPECT_NE(status.message().find("every address is a multiple of 64"), std::string::npos)
        << status.ToString();
  }
}

TEST_F(AddressesTest, ASmallPromiseStillHasBothClasses) {
  const auto plan = MakePromised(scale_, 8);
  ASSERT_EQ(plan->variants().size(), 2u);
  EXPECT_TRUE(plan->Launch(nullptr, FakeAddresses(scale_, 8).args()).ok());
  EXPECT_EQ(driver_.launches().back().symbol, "any");
  const Status status = plan->Launch(nullptr, FakeAddresses(scale_, 4).args());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("multiple of 8:"), std::string::npos) << status.ToString();
}

TEST_F(AddressesTest, PlansOfDifferentPromisesAreNotConfused) {
  const auto nothing = MakePlan(scale_), eight = MakePromised(scale_, 8);
  const auto sixteen = MakePromised(scale_, 16);
  EXPECT_NE(nothing, eight);
  EXPECT_NE(nothing, sixteen);
  EXPECT_NE(eight, sixteen);
  EXPECT_TRUE(nothing->Launch(nullptr, FakeAddresses(scale_, 4).args()).ok());
  EXPECT_FALSE(sixteen->Launch(nullptr, FakeAddresses(scale_, 4).args()).ok());
}

TEST_F(AddressesTest, APromiseThatIsNoPowerOfTwoIsRefused) {
  for (int64_t alignment : {int64_t{0}, int64_t{3}, int64_t{-8}, INT64_MIN}) {
    const auto plan = runtime_.MakePlan(bundle_, scale_, kCuda, {.alignment = alignment});
    ASSERT_FALSE(plan.ok()) << alignment;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(plan.status().message().find("power of two"), std::string::npos);
  }
}

TEST_F(AddressesTest, NullAddressesOfPresentTensorsAreRefused) {
  const auto plan = MakePlan(scale_);
  FakeAddresses addresses(scale_);
  addresses.operands[0] = nullptr;
  const Status status = plan->Launch(nullptr, addresses.args());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("x is null"), std::string::npos) << status.ToString();
}

TEST_F(AddressesTest, AMissingOrCrookedWorkspaceIsRefusedAtLaunch) {
  const Problem problem = ProblemOf(*bundle_, "run.steps", {"f32[3,64]"});
  const auto plan = MakePlan(problem);
  FakeAddresses addresses(problem);
  for (uintptr_t crooked : {0x0, 0x30010}) {
    addresses.workspace = reinterpret_cast<void*>(crooked);
    EXPECT_EQ(plan->Launch(nullptr, addresses.args()).code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(AddressesTest, AResultOverAnOperandMustHaveItsAddress) {
  const Problem problem = ProblemOf(*bundle_, "run.inplace", {"f32[3,64]"});
  const auto plan = MakePlan(problem);
  FakeAddresses addresses(problem);
  const Status status = plan->Launch(nullptr, addresses.args());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("result y"), std::string::npos) << status.ToString();
  addresses.results = addresses.operands;
  EXPECT_TRUE(plan->Launch(nullptr, addresses.args()).ok());
}

}  // namespace
}  // namespace kbundle
