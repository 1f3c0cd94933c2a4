// Promise: a request is bound to the op's interface exactly, and a wrong one is refused with a
// sentence that says what was given, what is wanted and where.
#include <gtest/gtest.h>

#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::MakeSpec;
using testing::TempDir;
using Attributes = std::vector<std::pair<std::string, std::string>>;

// "shape.mix": x T[rows.., K], idx i32[rows] (plain, equals the product), gamma? T[K], half u8[K /
// 2], with O chosen by an attribute; results y O[rows.., K], z f32[max(1, K)] when present(gamma),
// w T[rows.., K] written over x.
BundleMaker MixMaker() {
  BundleMaker maker = testing::SampleMaker(64);
  fb::OpT& op = maker.AddOp("shape.mix");
  fb::AttributeT& out = maker.AddAttribute(op, "out_dtype", AttributeType::kDType);
  out.has_default = true;
  out.integers = {static_cast<int64_t>(DType::kE4M3)};
  maker.AddAttribute(op, "axis", AttributeType::kInt);
  maker.AddAttribute(op, "sizes", AttributeType::kIntArray).max_len = 3;
  maker.AddAttribute(op, "alphas", AttributeType::kFloatArray).max_len = 3;
  op.attributes[2]->has_default = op.attributes[3]->has_default = true;
  maker.AddType(op, "T", {DType::kF32, DType::kBF16});
  maker.AddType(op, "O", {DType::kE4M3, DType::kE5M2}, 0);
  maker.AddType(op, "G", {DType::kF16, DType::kF32});
  maker.AddOperand(op, "x", "T", "rows.. K").strided = true;
  maker.AddOperand(op, "idx", "i32", "rows");
  maker.AddOperand(op, "half", "u8", "(K 2 /)");
  maker.AddOperand(op, "gamma", "G", "K H").optional = true;
  maker.AddResult(op, "y", "O", "rows.. K");
  maker.AddResult(op, "z", "f32", "(1 K max)").when = maker.Rule(op, nullptr, "gamma.present");
  maker.AddResult(op, "w", "T", "rows.. K").alias = 0;
  op.require.push_back(
      maker.Rule(op, nullptr, "gamma.present ! H K == ||", "!present(gamma) || H == K"));
  return maker;
}

class ProblemTest : public ::testing::Test {
 protected:
  ProblemTest() : bundle_(MixMaker().Open(dir_ / "mix.kb")) {}

  Result<Problem> Make(std::vector<std::string> operands, Attributes attributes = {{"axis", "0"}}) {
    return bundle_->MakeProblem("shape.mix", MakeSpec(operands, attributes));
  }
  void ExpectRefused(const Result<Problem>& problem, const std::string& part,
                     StatusCode code = StatusCode::kInvalidArgument) {
    ASSERT_FALSE(problem.ok()) << problem->ToString() << ", expected: " << part;
    EXPECT_EQ(problem.status().code(), code) << problem.status().ToString();
    EXPECT_NE(problem.status().message().find(part), std::string::npos)
        << problem.status().ToString() << "\nexpected: " << part;
  }
  Result<Problem> Scale(std::vector<std::string> operands, Attributes attributes = {}) {
    return bundle_->MakeProblem("demo.scale", MakeSpec(operands, attributes));
  }

  TempDir dir_;
  std::shared_ptr<const Bundle> bundle_;
};

TEST_F(ProblemTest, BindsSymbolsEllipsesAndTypes) {
  const auto problem = Make({"bf16[2,3,8]", "i32[6]", "u8[4]", "f32[8,8]"});
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  EXPECT_EQ(problem->symbols, (std::vector<int64_t>{6, 8, 8}));  // rows, K, H
  EXPECT_EQ(problem->results[0].ToString(), "e4m3[2,3,8]");
  EXPECT_EQ(problem->results[1].ToString(), "f32[8]");
  EXPECT_EQ(problem->results[2].ToString(), "bf16[2,3,8]");
  EXPECT_EQ(problem->types, 11u | 14u << 8 | 12u << 16);
}

TEST_F(ProblemTest, AbsentOptionalsGiveZeroDimsAndTheFirstAllowedType) {
  for (const auto& problem :
       {Make({"f32[8]", "i32[1]", "u8[4]"}), Make({"f32[8]", "i32[1]", "u8[4]", "absent"})}) {
    ASSERT_TRUE(problem.ok()) << problem.status().ToString();
    EXPECT_EQ(problem->symbols, (std::vector<int64_t>{1, 8, 0}));
    EXPECT_FALSE(problem->results[1].present);
    EXPECT_EQ(problem->results[0].ToString(), "e4m3[8]");  // no leading dim at all
    EXPECT_EQ(problem->types >> 16, static_cast<uint64_t>(DType::kF16));
  }
}

TEST_F(ProblemTest, TakesZeroSizesAndSaysThatNothingNeedBeDone) {
  const auto problem = Make({"f32[0,4]", "i32[0]", "u8[2]"});
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  EXPECT_TRUE(problem->AllResultsEmpty());
  EXPECT_FALSE(Make({"f32[1,4]", "i32[1]", "u8[2]"})->AllResultsEmpty());
}

TEST_F(ProblemTest, ConvertsAttributesByTheirType) {
  const auto problem =
      Make({"f32[8]", "i32[1]", "u8[4]"},
           {{"axis", "-1"}, {"out_dtype", "e5m2"}, {"sizes", "[1,2]"}, {"alphas", "[1,2]"}});
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  EXPECT_EQ(problem->results[0].dtype, DType::kE5M2);
  EXPECT_EQ(problem->attributes[2].integers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(problem->attributes[3].numbers, (std::vector<double>{1, 2}));
  const auto scaled = Scale({"f32[8]"}, {{"scale", "2"}, {"mode", "causal"}, {"flag", "true"}});
  ASSERT_TRUE(scaled.ok()) << scaled.status().ToString();
  EXPECT_EQ(scaled->attributes[0].number, 2.0);
  EXPECT_EQ(scaled->attributes[1].integer, 1);
  EXPECT_EQ(scaled->attributes[2].integer, 1);
}

TEST_F(ProblemTest, EqualProblemsHaveEqualKeysAndOthersHaveOthers) {
  ProblemSpec dense = MakeSpec({"f32[2,4]", "i32[2]", "u8[2]"}, {{"axis", "0"}});
  const std::string key = bundle_->MakeProblem("shape.mix", dense)->key;
  dense.operands[0].strides = {4, 1};
  EXPECT_EQ(bundle_->MakeProblem("shape.mix", dense)->key, key);
  dense.operands[0].strides = {8, 1};
  EXPECT_NE(bundle_->MakeProblem("shape.mix", dense)->key, key);
  EXPECT_NE(Make({"f32[2,4]", "i32[2]", "u8[2]"}, {{"axis", "1"}})->key, key);
  EXPECT_NE(Make({"f32[1,2,4]", "i32[2]", "u8[2]"})->key, key);
}

TEST_F(ProblemTest, RefusesAWrongOpAndNamesTheNearest) {
  ExpectRefused(bundle_->MakeProblem("demo.scael", {}), "did you mean 'demo.scale'?",
                StatusCode::kNotFound);
}

TEST_F(ProblemTest, RefusesAWrongOperandCount) {
  ExpectRefused(Make({"f32[8]"}), "1 operands given, it takes 4: (x, idx, half, gamma?)");
  ExpectRefused(Make({"f32[8]", "i32[1]", "u8[4]", "absent", "absent"}), "5 operands given");
  ExpectRefused(Make({"absent", "i32[1]", "u8[4]"}), "operand 0 'x' is absent and not optional");
}

TEST_F(ProblemTest, RefusesAWrongDType) {
  ExpectRefused(Make({"f16[8]", "i32[1]", "u8[4]"}),
                "operand 0 'x': dtype f16, T is one of f32, bf16");
  ExpectRefused(Make({"f32[8]", "i64[1]", "u8[4]"}), "operand 1 'idx': dtype i64, it takes i32");
  ExpectRefused(Make({"f32[8]", "i32[1]", "u8[4]"}, {{"axis", "0"}, {"out_dtype", "f32"}}),
                "attribute 'out_dtype': dtype f32, O is one of e4m3, e5m2");
}

TEST_F(ProblemTest, RefusesAWrongRank) {
  ExpectRefused(Make({"f32[]", "i32[1]", "u8[4]"}), "operand 0 'x': rank 0, its shape");
  ExpectRefused(Make({"f32[8]", "i32[1,1]", "u8[4]"}), "rank 2, its shape i32[rows] has rank 1");
  ExpectRefused(Make({"f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8]", "i32[1]", "u8[4]"}),
                "rank 17, at most 16");
}

TEST_F(ProblemTest, RefusesAWrongShapeRelation) {
  ExpectRefused(Make({"f32[3,8]", "i32[4]", "u8[4]"}), "dim 0 is 4, but rows is already 3");
  ExpectRefused(Make({"f32[3,8]", "i32[3]", "u8[5]"}),
                "operand 2 'half': dim 0 is 5, its shape u8[(K 2 /)] asks for 4 with rows=3, K=8");
  ExpectRefused(Scale({"f32[2,3,8]", "u8[3,2]"}),
                "leading dims [3,2], but rows.. is already [2,3]");
}

TEST_F(ProblemTest, RefusesAFalseRequireAndShowsTheValues) {
  ExpectRefused(Make({"f32[8]", "i32[1]", "u8[4]", "f16[8,9]"}),
                "require `!present(gamma) || H == K` is false with rows=1, K=8, H=9");
  ExpectRefused(Scale({"f32[4,0]"}), "require `K >= 1` is false");
}

TEST_F(ProblemTest, RefusesAttributesMissingUnknownMistypedOrTwice) {
  const std::vector<std::string> operands = {"f32[8]", "i32[1]", "u8[4]"};
  ExpectRefused(Make(operands, {}), "attribute 'axis' of type int is missing and has no default");
  ExpectRefused(Make(operands, {{"axes", "1"}}),
                "attribute 'axes' does not exist; did you mean 'axis'?");
  ExpectRefused(Make(operands, {{"axis", "1.5"}}),
                "attribute 'axis': float 1.5 given, it is of type int");
  ExpectRefused(Make(operands, {{"axis", "0"}, {"axis", "0"}}), "given twice");
  ExpectRefused(Make(operands, {{"axis", "0"}, {"out_dtype", "f99"}}), "'f99' is no dtype");
  ExpectRefused(Make(operands, {{"axis", "0"}, {"sizes", "[1,2,3,4]"}}),
                "4 elements given, at most 3");
  ExpectRefused(Make(operands, {{"axis", "0"}, {"sizes", "[1.5]"}}), "it is of type int[]");
  ExpectRefused(Make(operands, {{"axis", "0"}, {"sizes", "7"}}),
                "int 7 given, it is of type int[]");
  ExpectRefused(Scale({"f32[8]"}, {{"mode", "casual"}}),
                "'casual' is none of plain, causal; did you mean 'causal'?");
  ExpectRefused(Scale({"f32[8]"}, {{"flag", "2"}}), "int 2 given, it is of type bool");
  ExpectRefused(Scale({"f32[8]"}, {{"scale", "true"}}), "bool true given, it is of type float");
  ExpectRefused(Scale({"f32[8]"}, {{"scale", "9007199254740993000"}}), "no exact value as a float");
}

TEST_F(ProblemTest, SaysHowToWriteANumberThatIsNone) {
  const std::vector<std::string> operands = {"f32[8]", "i32[1]", "u8[4]"};
  ExpectRefused(Scale({"f32[8]"}, {{"scale", "1e400"}}),
                "text 1e400 given, it is of type float: write a number that a double holds");
  ExpectRefused(Make(operands, {{"axis", "1_0"}}),
                "text 1_0 given, it is of type int: write digits, as in -3, within 64 bits");
  ExpectRefused(Make(operands, {{"axis", "0"}, {"sizes", ""}}),
                "it is of type int[]: write integers in brackets, as in [1,2] or []");
  EXPECT_TRUE(Scale({"f32[8]"}, {{"flag", "1"}}).ok());
  EXPECT_TRUE(Make(operands, {{"axis", "0"}, {"sizes", "[]"}}).ok());
}

TEST_F(ProblemTest, RefusesSizesBeyond64Bits) {
  ExpectRefused(Scale({"f32[4294967296,4294967296]"}), "more than 2^63 bytes");
  ExpectRefused(Scale({"f32[4294967296,4294967296,4294967296]"}), "more than 2^63 bytes");
  EXPECT_EQ(testing::MakeSpec({"f32[4294967296,4294967296,0]"}).operands[0].elements(), 0);
}

TEST_F(ProblemTest, TakesStridesOnlyWhereTheOpDoes) {
  ProblemSpec spec = MakeSpec({"f32[2,4]", "i32[2]", "u8[2]"}, {{"axis", "0"}});
  spec.operands[0].strides = {8, 1};
  const auto problem = bundle_->MakeProblem("shape.mix", spec);
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  EXPECT_EQ(problem->operands[0].strides, (std::vector<int64_t>{8, 1}));
  spec.operands[0].strides = {8};
  ExpectRefused(bundle_->MakeProblem("shape.mix", spec), "1 strides for rank 2");
  spec.operands[0].strides = {-8, 1};
  ExpectRefused(bundle_->MakeProblem("shape.mix", spec), "negative");
  spec.operands[0].strides = {INT64_MAX, 1};
  ExpectRefused(bundle_->MakeProblem("shape.mix", spec), "beyond 64 bits");
  spec = MakeSpec({"f32[2,4]"});
  spec.operands[0].strides = {8, 1};
  ExpectRefused(bundle_->MakeProblem("demo.scale", spec), "takes dense row-major tensors");
}

TEST_F(ProblemTest, MessagesNameOpAndBundle) {
  const auto problem = Scale({});
  EXPECT_NE(problem.status().message().find("op 'demo.scale' of bundle 'sample'"),
            std::string::npos)
      << problem.status().ToString();
}

TEST(ParseTensorSpec, ReadsWhatItPrints) {
  for (const char* text : {"bf16[4,16,2048]", "f32[]", "u8[0]", "absent"}) {
    const auto spec = ParseTensorSpec(text);
    ASSERT_TRUE(spec.ok()) << text;
    EXPECT_EQ(spec->ToString(), text);
  }
  EXPECT_EQ(ParseTensorSpec("x = bf16[4, 2]")->ToString(), "bf16[4,2]");
  for (const char* text :
       {"", "bf17[4]", "f32", "f32[4", "f32[-1]", "f32[a]", "f32[1,,2]", "f32[1,]"}) {
    EXPECT_EQ(ParseTensorSpec(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseTensorSpec, TakesStridesBehindTheDims) {
  const auto spec = ParseTensorSpec("x=bf16[4, 2048]{4096, 1}");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->dims, (std::vector<int64_t>{4, 2048}));
  EXPECT_EQ(spec->strides, (std::vector<int64_t>{4096, 1}));
  EXPECT_EQ(spec->ToString(), "bf16[4,2048]{4096,1}");
  for (const char* bad : {"f32[4]{", "f32[4]{1", "f32{1}[4]", "f32[4]{1_0}", "f32[4]{-1}"}) {
    EXPECT_FALSE(ParseTensorSpec(bad).ok()) << bad;
  }
}

TEST(ParseAttributeValue, TakesTheNarrowestKind) {
  using Kind = AttributeValue::Kind;
  EXPECT_EQ(ParseAttributeValue("true").kind, Kind::kBool);
  EXPECT_EQ(ParseAttributeValue("3").kind, Kind::kInt);
  EXPECT_EQ(ParseAttributeValue("0.125").number, 0.125);
  EXPECT_EQ(ParseAttributeValue("bf16").text, "bf16");
  EXPECT_EQ(ParseAttributeValue("[1, 2]").integers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(ParseAttributeValue("[1, 2.5]").numbers, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(ParseAttributeValue("[]").kind, Kind::kIntArray);
  EXPECT_EQ(ParseAttributeValue("[a]").kind, Kind::kText);
}

}  // namespace
}  // namespace kbundle
