// Promise: a float in a struct is multiplied by its factor as a kernel's host code would do it, in
// the float's own precision; and templates of one name are parts of one variant or are refused.
#include <bit>
#include <cmath>
#include <cstring>

#include "support/plan_fixture.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::FakeAddresses;
using testing::FakeDriver;
using testing::ProblemOf;

constexpr float kLog2E = 1.4426950216293335f;

struct FactorBytes {
  uint8_t bytes[56];
};

// run.struct with a float attribute, whose product with the factor is the last field.
void PutFactor(fb::IndexT& index) {
  for (auto& op : index.ops) {
    if (op->name != "run.struct") continue;
    auto scale = std::make_unique<fb::AttributeT>();
    scale->name = "scale";
    scale->type = static_cast<uint8_t>(AttributeType::kFloat);
    scale->has_default = true;
    scale->floats = {1.0};
    op->attributes.push_back(std::move(scale));
    index.constants.push_back(std::bit_cast<int64_t>(double{kLog2E}));
    const auto constant = static_cast<uint32_t>(index.constants.size() - 1);
    index.code.push_back(static_cast<uint32_t>(Opcode::kConst) | constant << 8);
    fb::ArgT& arg = *index.templates[op->first_template]->steps[0]->structs[0]->fields[5]->arg;
    arg.kind = static_cast<uint8_t>(ArgKind::kFloat);
    arg.ctype = static_cast<uint8_t>(DType::kF32);
    arg.index = 0;
    arg.text = "f32(scale) times 1.44";
    arg.program = std::make_unique<fb::Span>(static_cast<uint32_t>(index.code.size() - 1), 1u);
  }
}

class StructFactorTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Bundle>> Open(void (*change)(fb::IndexT&)) {
    BundleMaker maker = testing::RunMaker();
    maker.change_index = change;
    testing::WriteFile(dir_ / "run.kb", maker.Bytes());
    return Bundle::Open(dir_ / "run.kb");
  }
  testing::TempDir dir_;
};

TEST_F(StructFactorTest, TheProductIsThatOfTwoFloats) {
  const auto bundle = Open(PutFactor).value();
  FakeDriver driver;
  Runtime runtime(driver.api());
  for (const char* text : {"0.08838834764831845", "-3.3", "0", "1e-39", "16777217"}) {
    const Problem problem = ProblemOf(*bundle, "run.struct", {"f32[3,4]"}, {{"scale", text}});
    const auto plan = runtime.MakePlan(bundle, problem, Device::Kind::kCuda, {}).value();
    FakeAddresses addresses(problem);
    ASSERT_EQ(plan->Launch(nullptr, addresses.args()).ToString(), "OK");
    const auto taken = driver.launches().back().Parameter<FactorBytes>(0);
    float found = 0;
    std::memcpy(&found, taken.bytes + 48, sizeof found);
    EXPECT_EQ(found, static_cast<float>(std::stod(text)) * kLog2E) << text;
  }
}

TEST_F(StructFactorTest, AFactorThatIsNoProgramIsRefused) {
  const auto bundle = Open([](fb::IndexT& index) {
    PutFactor(index);
    for (auto& row : index.templates) {
      if (row->steps[0]->structs.empty()) continue;
      row->steps[0]->structs[0]->fields[5]->arg->program =
          std::make_unique<fb::Span>(static_cast<uint32_t>(index.code.size()), 9u);
    }
  });
  ASSERT_FALSE(bundle.ok());
  EXPECT_NE(bundle.status().message().find("struct 0: field 5"), std::string::npos)
      << bundle.status().ToString();
}

TEST_F(StructFactorTest, AFactorOutsideAStructIsRefused) {
  const auto bundle = Open([](fb::IndexT& index) {
    PutFactor(index);
    for (auto& row : index.templates) {
      fb::StepT& step = *row->steps[0];
      if (step.structs.empty()) continue;
      step.args[1] = std::make_unique<fb::ArgT>(*step.structs[0]->fields[5]->arg);
    }
  });
  ASSERT_FALSE(bundle.ok());
  EXPECT_NE(bundle.status().message().find("a factor outside a struct"), std::string::npos)
      << bundle.status().ToString();
}

// run.wide has two templates beside each other, of one provider and without tunables.
TEST_F(StructFactorTest, TemplatesOfOneNameArePartsOfOneVariant) {
  const auto renamed = [](fb::IndexT& index) {
    for (auto& row : index.templates) {
      if (row->name == "tall") row->name = "flat";
    }
  };
  EXPECT_EQ(Open(renamed).status().ToString(), "OK");
  const auto apart = Open([](fb::IndexT& index) {
    for (auto& row : index.templates) {
      if (row->name == "tall") row->name = "flat", row->tunables = {"VEC"};
    }
  });
  ASSERT_FALSE(apart.ok());
  EXPECT_NE(apart.status().message().find("template 'flat' appears twice"), std::string::npos)
      << apart.status().ToString();
}

}  // namespace
}  // namespace kbundle
