// Promise: a kernel that takes a struct by value gets its bytes, with numbers and addresses where
// they belong, and a bundle that lies about a struct is refused.
#include <cstring>

#include "support/plan_fixture.h"

namespace kbundle {
namespace {

using testing::FakeAddresses;
using testing::FakeDriver;
using testing::ProblemOf;

class StructArgumentTest : public testing::PlanFixture {
 protected:
  const Problem problem_ = ProblemOf(*bundle_, "run.struct", {"f32[3,4]"});
};

struct TakenStruct {
  uint8_t bytes[56];
  template <typename T>
  T At(size_t offset) const {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  }
};

TEST_F(StructArgumentTest, FieldsAreWrittenOverTheBytes) {
  const auto plan = MakePlan(problem_);
  FakeAddresses addresses(problem_);
  ASSERT_EQ(plan->Launch(nullptr, addresses.args()).ToString(), "OK");
  const FakeDriver::Launch launch = driver_.launches().at(0);
  const auto taken = launch.Parameter<TakenStruct>(0);
  EXPECT_EQ(taken.At<void*>(0), addresses.results[0]);
  EXPECT_EQ(taken.At<void*>(9), static_cast<float*>(addresses.operands[0]) + 3);
  EXPECT_EQ(taken.At<int32_t>(20), 3);
  EXPECT_EQ(taken.At<uint8_t>(24), 4);
  EXPECT_EQ(taken.At<void*>(32), static_cast<float*>(addresses.workspace) + 2);
  EXPECT_EQ(taken.At<uint32_t>(48), 11u);
  for (const size_t between : {8, 17, 19, 25, 31, 40, 47, 52, 55}) {
    EXPECT_EQ(taken.bytes[between], 0xab) << between;
  }
  EXPECT_EQ(launch.Parameter<int64_t>(1), 3);
}

// Another call's addresses are not left in the plan.
TEST_F(StructArgumentTest, EachLaunchHasItsOwnAddresses) {
  const auto plan = MakePlan(problem_);
  for (const uintptr_t offset : {0, 4096, 64}) {
    FakeAddresses addresses(problem_, offset);
    ASSERT_EQ(plan->Launch(nullptr, addresses.args()).ToString(), "OK");
    const FakeDriver::Launch launch = driver_.launches().back();
    EXPECT_EQ(launch.Parameter<TakenStruct>(0).At<void*>(0), addresses.results[0]);
  }
}

TEST_F(StructArgumentTest, ANumberThatDoesNotFitItsFieldIsRefused) {
  const Status status = WhyNot(ProblemOf(*bundle_, "run.struct", {"f32[255,4]"}));
  EXPECT_NE(status.message().find("argument u8(rows 1 +): 256 does not fit u8"), std::string::npos)
      << status.ToString();
}

TEST_F(StructArgumentTest, AnAddressOutsideItsTensorIsRefused) {
  const Status status = WhyNot(ProblemOf(*bundle_, "run.struct", {"f32[1,2]"}));
  EXPECT_NE(status.message().find("ws:partial at 2 is element 2 of a tensor of 2"),
            std::string::npos)
      << status.ToString();
}

// ---- Lies --------------------------------------------------------------------------------------

fb::StepT& TakingStep(fb::IndexT& index) {
  for (auto& row : index.templates) {
    if (!row->steps[0]->structs.empty()) return *row->steps[0];
  }
  std::abort();
}

struct StructLie {
  const char* name;
  void (*tell)(fb::StepT& step);
  const char* words;
};

const StructLie kStructLies[] = {
    {"NoBytes", [](auto& step) { step.structs[0]->bytes.clear(); }, "a struct of 0 bytes"},
    {"TooManyBytes", [](auto& step) { step.structs[0]->bytes.resize(4097); }, "at most 4096"},
    {"FieldBehindTheEnd", [](auto& step) { step.structs[0]->fields[5]->offset = 53; },
     "field 5 of 4 bytes at 53: between 40 and 56 is its place"},
    {"FieldsThatOverlap", [](auto& step) { step.structs[0]->fields[1]->offset = 7; },
     "field 1 of 8 bytes at 7: between 8 and 56 is its place"},
    {"FieldsOutOfOrder",
     [](auto& step) { std::swap(step.structs[0]->fields[0], step.structs[0]->fields[1]); },
     "field 1 of 8 bytes at 0"},
    {"StructInAStruct",
     [](auto& step) {
       step.structs[0]->fields[0]->arg->kind = static_cast<uint8_t>(ArgKind::kStruct);
     },
     "argument kind 8 is not a pointer"},
    {"TensorMapInAStruct",
     [](auto& step) {
       step.structs[0]->fields[0]->arg->kind = static_cast<uint8_t>(ArgKind::kTensorMap);
     },
     "argument kind 7 is not a pointer"},
    {"ByteThatStandsAlone",
     [](auto& step) { step.args[1]->ctype = static_cast<uint8_t>(DType::kU8); },
     "ctype 2 for an integer"},
    {"OperandThatIsNotThere", [](auto& step) { step.structs[0]->fields[1]->arg->index = 9; },
     "operand 9 does not exist"},
    {"MoreThanAKernelTakes", [](auto& step) { step.structs[0]->bytes.resize(4096); },
     "argument bytes, at most 4096"},
};

class StructLies : public ::testing::TestWithParam<StructLie> {};

TEST_P(StructLies, AreRefusedAndNamed) {
  testing::TempDir dir;
  testing::BundleMaker maker = testing::RunMaker();
  maker.change_index = [](fb::IndexT& index) { GetParam().tell(TakingStep(index)); };
  testing::WriteFile(dir / "lie.kb", maker.Bytes());
  const auto bundle = Bundle::Open(dir / "lie.kb");
  ASSERT_FALSE(bundle.ok());
  EXPECT_NE(bundle.status().message().find(GetParam().words), std::string::npos)
      << bundle.status().ToString();
}

INSTANTIATE_TEST_SUITE_P(Lies, StructLies, ::testing::ValuesIn(kStructLies),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(StructFeature, AFileWithStructsAndWithoutTheirBitIsRefused) {
  testing::TempDir dir;
  testing::BundleMaker maker = testing::RunMaker();
  maker.change_header = [](Header& header) { header.required_features &= ~kFeatureStructs; };
  testing::WriteFile(dir / "lie.kb", maker.Bytes());
  const auto bundle = Bundle::Open(dir / "lie.kb");
  ASSERT_FALSE(bundle.ok());
  EXPECT_NE(bundle.status().message().find("structs without their feature bit"), std::string::npos);
}

}  // namespace
}  // namespace kbundle
