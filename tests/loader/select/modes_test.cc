// Promise: who asks for a mode gets what promises it or an error that says what is promised, and a
// batch-invariant choice is the same for a batch of every size.
#include "kbundle/modes.h"

#include <gtest/gtest.h>

#include "kbundle/select.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/tuned_rows.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::MakeSpec;
using testing::SampleMaker;
using testing::TempDir;

constexpr Modes kSame{.deterministic = true};
constexpr Modes kAnyBatch{.batch_invariant = true};

// The sample, whose rows are a batch when `batch`; its templates are vec, any and simd.
class ModesTest : public ::testing::Test {
 protected:
  ModesTest() : maker_(SampleMaker(64)) {
    auto cut = std::make_unique<fb::CutT>();
    cut->symbols = {0};
    cut->batch = true;
    maker_.index.ops[0]->independent.push_back(std::move(cut));
  }
  std::unique_ptr<fb::RuleT> Rule(int row, const std::string& postfix, const std::string& text) {
    return maker_.Rule(*maker_.index.ops[0], maker_.index.templates[row].get(), postfix, text);
  }
  void Promise(int row, const std::string& postfix = "1", const std::string& text = "true") {
    maker_.index.templates[row]->deterministic = Rule(row, postfix, text);
    maker_.index.templates[row]->batch_invariant = Rule(row, postfix, text);
  }
  void When(int row, const std::string& postfix, const std::string& text) {
    maker_.index.templates[row]->when.push_back(Rule(row, postfix, text));
  }
  // What is chosen on sm_90a, as "vec[T=f32,VEC=4]", or the error.
  std::string Chosen(const std::string& x, const Modes& modes) {
    if (bundle_ == nullptr) bundle_ = maker_.Open(dir_ / "modes.kb");
    auto problem = bundle_->MakeProblem("demo.scale", MakeSpec({x}));
    KB_CHECK(problem.ok());
    const auto first = SelectFirst(*bundle_, *problem, *DeviceFromTargetName("sm_90a"),
                                   {.policy = {}, .modes = modes});
    if (!first.ok()) return first.status().ToString();
    const std::string id = bundle_->VariantId(first->variant);
    const size_t begin = id.find('/') + 1;
    return id.substr(begin, id.find('@') - begin);
  }
  void ExpectError(const std::string& said, StatusCode code, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_EQ(said.find(StatusCodeName(code)), 0u) << said;
  }

  TempDir dir_;
  BundleMaker maker_;
  std::shared_ptr<const Bundle> bundle_;
};

TEST_F(ModesTest, WhatPromisesNothingIsNotChosen) {
  EXPECT_EQ(Chosen("f32[4,64]", {}), "vec[T=f32,VEC=4]");
  const std::string said = Chosen("f32[4,64]", kSame);
  ExpectError(said, StatusCode::kNotFound, "vec: it does not promise to be deterministic");
  ExpectError(said, StatusCode::kNotFound, "ask for less (deterministic, batch_invariant)");
  ExpectError(Chosen("f32[4,64]", kAnyBatch), StatusCode::kNotFound,
              "any: it does not promise to be batch_invariant");
}

TEST_F(ModesTest, TheFirstThatPromisesIsChosen) {
  Promise(1);
  for (const Modes& modes : {kSame, kAnyBatch, Modes{true, true}}) {
    EXPECT_EQ(Chosen("f32[4,64]", modes), "any[T=f32]");
  }
  EXPECT_EQ(Chosen("f32[4,64]", {}), "vec[T=f32,VEC=4]");
}

TEST_F(ModesTest, APromiseMayDependOnTheProblem) {
  Promise(0, "K 128 %  0 ==", "K % 128 == 0");
  EXPECT_EQ(Chosen("f32[4,256]", kSame), "vec[T=f32,VEC=4]");
  ExpectError(Chosen("f32[5,64]", kAnyBatch), StatusCode::kNotFound, "does not promise");
  ExpectError(Chosen("f32[5,64]", kSame), StatusCode::kNotFound,
              "vec: it is deterministic where `K % 128 == 0`, which is not so with rows=5, K=64");
}

TEST_F(ModesTest, ARuleThatLooksAtTheBatchHoldsForNoSizeOfIt) {
  Promise(0), Promise(1);
  When(0, "rows 8 <=", "rows <= 8");
  for (const char* x : {"f32[1,64]", "f32[2,64]", "f32[3,3,64]", "f32[4096,64]"}) {
    EXPECT_EQ(Chosen(x, kAnyBatch), "any[T=f32]") << x;
  }
  EXPECT_EQ(Chosen("f32[2,64]", kSame), "vec[T=f32,VEC=4]");
  When(1, "rows 8 <=", "rows <= 8");
  bundle_ = nullptr;
  ExpectError(Chosen("f32[2,64]", kAnyBatch), StatusCode::kNotFound,
              "`rows <= 8` depends on how many items are in the batch");
}

TEST_F(ModesTest, ASideThatDoesNotDecideMayLookAtTheBatch) {
  Promise(0), Promise(1);
  When(0, "K 64 == rows 8 <= ||", "K == 64 || rows <= 8");
  EXPECT_EQ(Chosen("f32[4,64]", kAnyBatch), "vec[T=f32,VEC=4]");
  EXPECT_EQ(Chosen("f32[4,128]", kAnyBatch), "any[T=f32]");
  EXPECT_EQ(Chosen("f32[4,128]", kSame), "vec[T=f32,VEC=4]");
}

TEST_F(ModesTest, SizesRankAndDenseStridesOfTensorsAreTheBatchToo) {
  for (const char* look : {"x.dim0 8 <=", "x.rank 2 ==", "y.dim0 8 <="}) {
    maker_ = SampleMaker(64);
    auto cut = std::make_unique<fb::CutT>();
    cut->symbols = {0};
    cut->batch = true;
    maker_.index.ops[0]->independent.push_back(std::move(cut));
    Promise(0), Promise(1);
    When(0, look, look);
    bundle_ = nullptr;
    EXPECT_EQ(Chosen("f32[4,64]", kAnyBatch), "any[T=f32]") << look;
    EXPECT_EQ(Chosen("f32[4,64]", kSame), "vec[T=f32,VEC=4]") << look;
  }
  // The last axis holds no items.
  maker_.index.templates[0]->when.pop_back();
  When(0, "x.dim1 64 ==", "dim(x, 1) == 64");
  bundle_ = nullptr;
  EXPECT_EQ(Chosen("f32[4,64]", kAnyBatch), "vec[T=f32,VEC=4]");
}

TEST_F(ModesTest, TheNearestRecordIsTheNearestInWhatIsNoBatch) {
  Promise(0), Promise(1);
  const auto plain = maker_.Open(dir_ / "plain.kb");
  const auto row = [&](const std::string& variant) {
    return plain->FindVariants("demo.scale/" + variant + "@sm_90a")->at(0);
  };
  const auto problem = [&](const std::string& x) {
    return *plain->MakeProblem("demo.scale", MakeSpec({x}));
  };
  const uint32_t any = row("any[T=bf16]"), vec4 = row("vec[T=bf16,VEC=4]");
  maker_.change_index = [&](fb::IndexT& index) {
    testing::AddTunedRows(*plain,
                          {{problem("bf16[4,64]"), vec4, any},
                           {problem("bf16[4096,64]"), any, vec4},
                           {problem("bf16[4,8192]"), any, vec4}},
                          &index);
  };
  EXPECT_EQ(Chosen("bf16[4096,64]", {}), "any[T=bf16]");
  for (const char* x : {"bf16[1,64]", "bf16[4096,64]", "bf16[100000,64]", "bf16[0,64]"}) {
    EXPECT_EQ(Chosen(x, kAnyBatch), "vec[T=bf16,VEC=4]") << x;
  }
  EXPECT_EQ(Chosen("bf16[4,8192]", kAnyBatch), "any[T=bf16]");
}

TEST_F(ModesTest, AForcedVariantThatDoesNotPromiseIsAnError) {
  Promise(1);
  EXPECT_EQ(Chosen("f32[4,64]", kSame), "any[T=f32]");
  const auto problem = bundle_->MakeProblem("demo.scale", MakeSpec({"f32[4,64]"}));
  SelectOptions options{.policy = {}, .modes = kSame};
  options.policy.wishes = {{"demo.scale/vec[T=f32,VEC=4]@sm_90a", true}};
  const auto first = SelectFirst(*bundle_, *problem, *DeviceFromTargetName("sm_90a"), options);
  ExpectError(first.status().ToString(), StatusCode::kFailedPrecondition, "does not promise");
}

TEST_F(ModesTest, APromiseForBatchesNeedsACutForThem) {
  Promise(1);
  maker_.index.ops[0]->independent[0]->batch = false;
  testing::WriteFile(dir_ / "lie.kb", maker_.Bytes());
  ExpectError(Bundle::Open(dir_ / "lie.kb").status().ToString(), StatusCode::kDataLoss,
              "promises to be batch_invariant, but no cut of its op is for batches");
}

TEST_F(ModesTest, APromiseIsAProgramThatMakesSense) {
  Promise(1);
  maker_.index.templates[1]->deterministic->program = nullptr;
  testing::WriteFile(dir_ / "lie.kb", maker_.Bytes());
  ExpectError(Bundle::Open(dir_ / "lie.kb").status().ToString(), StatusCode::kDataLoss,
              "promise 'deterministic'");
}

TEST(Modes, BitsThatNobodyKnowsAreRefused) {
  EXPECT_EQ(Modes::FromBits(3, "asking")->bits(), 3u);
  const Status status = Modes::FromBits(6, "asking").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("asking: the modes 0x6"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace kbundle
