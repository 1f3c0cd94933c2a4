// Promise: programs compute exactly, errors are values that carry the text, and && || ?: look only
// at the side that decides.
#include "loader/bind/eval.h"

#include <gtest/gtest.h>

#include <random>

#include "loader/open/index.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::MakeSpec;
using testing::TempDir;

// Evaluates postfix texts for one problem of demo.scale, or of an op with everything a program can
// ask for.
class EvalTest : public ::testing::Test {
 protected:
  Result<int64_t> Eval(const std::string& postfix, int64_t alignment = 16) {
    TempDir dir;
    BundleMaker maker = testing::SampleMaker(64);
    fb::OpT& op = maker.AddOp("eval.op");
    maker.AddType(op, "T", {DType::kF32, DType::kBF16});
    maker.AddOperand(op, "x", "T", "rows.. K").strided = true;
    maker.AddOperand(op, "m", "f64", "Q").optional = true;
    maker.AddResult(op, "y", "T", "rows.. K");
    maker.AddAttribute(op, "n", AttributeType::kInt);
    maker.AddAttribute(op, "list", AttributeType::kIntArray).max_len = 4;
    fb::TemplateT& row = maker.AddTemplate("v", "host", {"VEC"});
    row.lets.push_back(maker.Rule(op, &row, "K n /", "PER"));
    row.lets.push_back(maker.Rule(op, &row, "let:PER 1 +", "MORE"));
    maker.AddKernelStep(row, "f");
    row.when.push_back(maker.Rule(op, &row, postfix, "the text"));
    const uint32_t blob = maker.AddBlob(testing::FakeCode(64, 3, 0), fb::BlobFormat::HostObject);
    maker.AddVariant(row, "x86-64-v2", {DType::kBF16}, {8}, {blob}, {"f"});
    const auto bundle = maker.Open(dir / "x.kb");

    ProblemSpec spec = MakeSpec({"bf16[3,4,10]", present_ ? "f64[5]" : "absent"},
                                {{"n", std::to_string(n_)}, {"list", "[7,-8]"}});
    spec.operands[0].strides = {80, 20, 1};
    const auto problem = bundle->MakeProblem("eval.op", spec);
    KB_CHECK(problem.ok());
    EvalContext context;
    context.bundle = bundle.get();
    context.problem = &*problem;
    context.alignment = alignment;
    context.sm_count = 132;
    const auto variant = static_cast<uint32_t>(IndexOf(*bundle).variants()->size() - 1);
    context.tunables = Tunables(*bundle, variant);
    const LetValues lets = EvaluateLets(context, variant);
    context.lets = lets.view();
    context.let_errors = lets.errors;
    const auto& templates = *IndexOf(*bundle).templates();
    const fb::Rule& rule = *templates.Get(templates.size() - 1)->when()->Get(0);
    return Evaluate(context, rule.program()->first(), rule.program()->count(),
                    rule.text()->string_view());
  }
  void ExpectValue(const std::string& postfix, int64_t value) {
    const auto found = Eval(postfix);
    ASSERT_TRUE(found.ok()) << postfix << ": " << found.status().ToString();
    EXPECT_EQ(*found, value) << postfix;
  }
  void ExpectError(const std::string& postfix, const std::string& part) {
    const auto found = Eval(postfix);
    ASSERT_FALSE(found.ok()) << postfix << " gave " << *found;
    EXPECT_EQ(found.status().code(), StatusCode::kOutOfRange);
    EXPECT_NE(found.status().message().find(part), std::string::npos) << found.status().ToString();
    EXPECT_NE(found.status().message().find("`the text`"), std::string::npos);
    EXPECT_NE(found.status().message().find("rows=12, K=10"), std::string::npos);
  }

  int64_t n_ = 3;
  bool present_ = true;
};

TEST_F(EvalTest, ComputesWithIntegers) {
  ExpectValue("7 2 /", 3);
  ExpectValue("-7 2 /", -3);
  ExpectValue("-7 2 %", -1);
  ExpectValue("7 2 ceil_div", 4);
  ExpectValue("-7 2 ceil_div", -3);
  ExpectValue("-7 -2 ceil_div", 4);
  ExpectValue("6 2 ceil_div", 3);
  ExpectValue("3 5 min 4 max", 4);
  ExpectValue("5 neg abs", 5);
  ExpectValue("0 next_pow2", 1);
  ExpectValue("1025 next_pow2", 2048);
  ExpectValue("-5 ceil_log2", 0);
  ExpectValue("1 ceil_log2", 0);
  ExpectValue("1024 ceil_log2", 10);
  ExpectValue("1025 ceil_log2", 11);
  ExpectValue("9223372036854775807 ceil_log2", 63);
  ExpectValue("1 2 < 2 2 <= && 3 2 > && 2 2 >= && 1 1 == && 1 2 != &&", 1);
  ExpectValue("5 ! 0 ! +", 1);
  ExpectValue("1 10 20 ?: 0 10 20 ?: -", -10);
}

// Programs of common operators are run without slots; one that negates is not.
TEST_F(EvalTest, TheShortWayGivesWhatTheLongOneDoes) {
  const std::vector<std::string> values = {
      "K", "rows",   "n",        "VEC", "T.size", "x.align", "-1", "0",      "1",
      "7", "list.3", "let:MORE", "2",   "-8",     "3",       "40", "x.dim1", "4611686018427387904"};
  const std::vector<std::string> operators = {"+",  "-",  "*", "/",  "%", "min", "max", "ceil_div",
                                              "==", "!=", "<", "<=", ">", ">=",  "&&",  "||"};
  std::mt19937 random(5);
  const auto one_of = [&](const auto& list) { return list[random() % list.size()]; };
  int errors = 0;
  for (int program = 0; program < 300; ++program) {
    std::string postfix = one_of(values);
    for (int i = 0; i < 4; ++i) {
      postfix += " " + one_of(values);
      const bool choice = random() % 5 == 0;
      postfix += choice ? " " + one_of(values) + " ?:" : " " + one_of(operators);
    }
    const auto found = Eval(postfix), slow = Eval("0 neg " + postfix + " +");
    ASSERT_EQ(found.ok(), slow.ok())
        << postfix << ": " << found.status().ToString() << " and " << slow.status().ToString();
    if (found.ok())
      ASSERT_EQ(*found, *slow) << postfix;
    else
      ASSERT_EQ(found.status().message(), slow.status().message()) << postfix;
    errors += !found.ok();
  }
  EXPECT_GT(errors, 20);
  EXPECT_LT(errors, 200);
}

TEST_F(EvalTest, ReadsTheProblemAndTheVariant) {
  ExpectValue("rows", 12);
  ExpectValue("K VEC *", 80);
  ExpectValue("x.dim1 x.rank *", 12);
  ExpectValue("x.stride0", 80);
  ExpectValue("y.stride0", 40);
  ExpectValue("T.size", 2);
  ExpectValue("T bf16 ==", 1);
  ExpectValue("n list.len * list.1 +", -2);
  ExpectValue("let:MORE", 4);
  ExpectValue("m.present m.dim0 *", 5);
  present_ = false;
  ExpectValue("m.present m.dim0 + m.rank + Q +", 0);
}

TEST_F(EvalTest, AlignmentIsNeverBelowTheElementAndAbsentTensorsDoNotLowerIt) {
  EXPECT_EQ(*Eval("x.align", 16), 16);
  EXPECT_EQ(*Eval("x.align", 1), 2);
  EXPECT_EQ(*Eval("m.align", 1), 8);
  present_ = false;
  EXPECT_EQ(*Eval("x.align m.align min", 16), 16);
}

TEST_F(EvalTest, OverflowAndDivisionByZeroAreErrorsThatShowTheText) {
  ExpectError("9223372036854775807 1 +", "overflows 64 bits");
  ExpectError("-9223372036854775807 2 -", "overflows 64 bits");
  ExpectError("4294967296 4294967296 *", "overflows 64 bits");
  ExpectError("-9223372036854775808 neg", "overflows 64 bits");
  ExpectError("-9223372036854775808 abs", "overflows 64 bits");
  ExpectError("-9223372036854775808 -1 /", "overflows 64 bits");
  ExpectError("-9223372036854775808 -1 %", "overflows 64 bits");
  ExpectError("4611686018427387905 next_pow2", "overflows 64 bits");
  ExpectError("1 0 /", "divides by zero");
  ExpectError("1 0 %", "divides by zero");
  ExpectError("1 0 ceil_div", "divides by zero");
  ExpectError("list.3", "an axis or element that is not there");
  ExpectError("x.dim7", "an axis or element that is not there");
}

TEST_F(EvalTest, OnlyTheDecidingSideIsLookedAt) {
  ExpectValue("0 1 0 / &&", 0);
  ExpectValue("1 1 0 / ||", 1);
  ExpectValue("1 5 1 0 / ?:", 5);
  ExpectValue("0 1 0 / 5 ?:", 5);
  ExpectError("1 1 0 / &&", "divides by zero");
  ExpectError("0 1 0 / ||", "divides by zero");
  ExpectError("1 0 / 1 &&", "divides by zero");
  ExpectError("1 0 / 1 2 ?:", "divides by zero");
  ExpectError("1 1 0 / 5 ?:", "divides by zero");
  ExpectError("1 0 / 0 *", "divides by zero");
}

TEST_F(EvalTest, ALetThatErrsSpoilsOnlyItsUsers) {
  n_ = 0;  // PER = K / n
  ExpectError("let:PER", "a let that could not be computed");
  ExpectError("let:MORE", "a let that could not be computed");
  ExpectValue("n 0 == 1 let:MORE ?:", 1);
}

}  // namespace
}  // namespace kbundle
