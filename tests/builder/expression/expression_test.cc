// The expression language means what MANIFEST.md says: precedence, types, short-circuit, checked
// arithmetic, bounded programs.
#include "builder/expression/expression.h"

#include <gtest/gtest.h>

#include <limits>

#include "builder/expression/compile.h"
#include "builder/expression/evaluate.h"
#include "kbundle/arithmetic.h"

namespace kbundle::builder {
namespace {

// An op with K = 7, rows = 3, zero = 0; n = 5, on = true, mode = "causal", axes = [2, -1];
// T = bf16, O = f32; x present of shape [3, 7], m absent, y the result of shape [3, 7];
// VEC = 4; let HALF = K / 2.
class ExpressionTest : public ::testing::Test {
 protected:
  ExpressionTest() {
    op_.symbols = {"K", "rows", "zero"};
    op_.attributes.resize(6);
    const char* names[] = {"n", "on", "mode", "axes", "scale", "out"};
    AttributeType types[] = {AttributeType::kInt,   AttributeType::kBool,
                             AttributeType::kEnum,  AttributeType::kIntArray,
                             AttributeType::kFloat, AttributeType::kDType};
    for (int i = 0; i < 6; ++i) {
      op_.attributes[i].name = names[i];
      op_.attributes[i].type = types[i];
      Declare(names[i], Entity::Kind::kAttribute, i);
    }
    op_.attributes[2].choices = {"none", "causal"};
    op_.attributes[3].max_len = 4;
    op_.types = {{"T", {DType::kBF16}, -1}, {"O", {DType::kF32}, -1}};
    op_.operands.resize(2);
    op_.results.resize(1);
    for (Tensor* tensor : {&op_.operands[0], &op_.operands[1], &op_.results[0]})
      tensor->dims.resize(2);
    for (int i = 0; i < 3; ++i) Declare(op_.symbols[i], Entity::Kind::kSymbol, i);
    Declare("T", Entity::Kind::kTypeParam, 0);
    Declare("O", Entity::Kind::kTypeParam, 1);
    Declare("x", Entity::Kind::kOperand, 0);
    Declare("m", Entity::Kind::kOperand, 1);
    Declare("y", Entity::Kind::kResult, 0);
    Declare("VEC", Entity::Kind::kTunable, 0);
    Entity half{
        Entity::Kind::kLet, 0, {}, {{Opcode::kDim, 0}, {Opcode::kConst, 2}, {Opcode::kDiv, 0}}};
    EXPECT_EQ(names_.Declare("HALF", half), "");
    bindings_.types = {DType::kBF16, DType::kF32};
    bindings_.symbols = {7, 3, 0};
    bindings_.attributes = {{{5}, 1},     {{1}, 1}, {{1}, 1},
                            {{2, -1}, 2}, {{}, 0},  {{static_cast<int64_t>(DType::kF16)}, 1}};
    bindings_.tensors = {{true, {3, 7}}, {false, {}}, {true, {3, 7}}};
    bindings_.tunables = {4};
    bindings_.lets = {3};
    bindings_.sm_count = 132;
  }

  void Declare(const std::string& name, Entity::Kind kind, int index) {
    EXPECT_EQ(names_.Declare(name, {kind, index, {}, {}}), "");
  }

  std::optional<Compiled> Compile(const std::string& text, const Place& place = GridPlace()) {
    ExpressionParser parser(text);
    Expression expression = parser.ParseAll();
    error_ = {};
    if (!parser.ok()) {
      error_ = *parser.error();
      return std::nullopt;
    }
    CompileInput input{&op_, &names_, nullptr, text};
    return CompileExpression(expression, input, place, &error_);
  }

  int64_t Value(const std::string& text) {
    std::optional<Compiled> compiled = Compile(text);
    if (!compiled) {
      ADD_FAILURE() << text << ": " << error_.message;
      return INT64_MIN;
    }
    Result<int64_t> value = Evaluate(compiled->program, bindings_);
    if (!value.ok()) {
      ADD_FAILURE() << value.status().ToString();
      return INT64_MIN;
    }
    return *value;
  }

  SlotError ErrorOf(const std::string& text) {
    std::optional<Compiled> compiled = Compile(text);
    if (!compiled) {
      ADD_FAILURE() << text << ": " << error_.message;
      return SlotError::kNone;
    }
    return builder::Run(compiled->program.code, bindings_).error;
  }

  Op op_;
  Names names_;
  Bindings bindings_;
  ExpressionError error_;
};

struct Case {
  const char* text;
  int64_t value;
};

// Promise: positive(a) says of a float attribute whether a kernel gets a number above 0, and is of
// float attributes alone.
TEST_F(ExpressionTest, TellsPositiveFloatAttributes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double above : {1.0, 0.125, 1e-40, 3e38, kInfinity}) {
    bindings_.attributes[4].number = above;
    EXPECT_EQ(Value("positive(scale)"), 1) << above;
    EXPECT_EQ(Value("!positive(scale) || n == 0"), 0) << above;
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double other : {0.0, -0.0, -1.0, -1e-40, 1e-60, -kInfinity, nan, -nan}) {
    bindings_.attributes[4].number = other;
    EXPECT_EQ(Value("positive(scale)"), 0) << other;
  }
  for (const char* text : {"positive(n)", "positive(K)", "positive(x)", "positive(scale, scale)",
                           "positive(-scale)", "positive(nowhere)"})
    EXPECT_FALSE(Compile(text)) << text;
  EXPECT_FALSE(Compile("positive(n)"));
  EXPECT_EQ(error_.message, "positive wants a float attribute, but found 'n'");
}

TEST_F(ExpressionTest, HasThePrecedenceAndValuesOfC) {
  const Case cases[] = {
      {"1 + 2 * 3", 7},
      {"(1 + 2) * 3", 9},
      {"10 - 4 - 3", 3},
      {"100 / 10 / 5", 2},
      {"7 % 4 * 2", 6},
      {"-7 / 2", -3},
      {"-7 % 2", -1},
      {"7 / -2", -3},
      {"- - 3", 3},
      {"2 - -3", 5},
      {"-2 * 3", -6},
      {"1 + 1 == 2", 1},
      {"1 < 2 == true", 1},
      {"3 >= 3 && 2 > 3", 0},
      {"true || false && false", 1},
      {"(true || false) && false", 0},
      {"!true || true", 1},
      {"!(1 > 2)", 1},
      {"1 > 2 ? 10 : 20", 20},
      {"true ? 1 : false ? 2 : 3", 1},
      {"false ? 1 : false ? 2 : 3", 3},
      {"true ? false ? 1 : 2 : 3", 2},
      {"1 + (true ? 1 : 0) * 2", 3},
      {"0 == 0 != false", 1},
      {"9223372036854775807", INT64_MAX},
      {"-9223372036854775807 - 1", INT64_MIN},
  };
  for (const Case& c : cases) EXPECT_EQ(Value(c.text), c.value) << c.text;
}

TEST_F(ExpressionTest, HasItsFunctions) {
  const Case cases[] = {
      {"min(3, 1, 2)", 1},     {"max(3, 1, 2, 9)", 9},
      {"ceil_div(7, 2)", 4},   {"ceil_div(8, 2)", 4},
      {"ceil_div(-7, 2)", -3}, {"ceil_div(-7, -2)", 4},
      {"ceil_div(0, 5)", 0},   {"next_pow2(0)", 1},
      {"ceil_log2(1)", 0},     {"ceil_log2(1025)", 11},
      {"next_pow2(1)", 1},     {"next_pow2(5)", 8},
      {"next_pow2(-3)", 1},    {"next_pow2(4611686018427387904)", int64_t{1} << 62},
      {"abs(-4)", 4},          {"abs(4)", 4},
      {"sizeof(T)", 2},        {"sizeof(O)", 4},
      {"sizeof(e4m3)", 1},     {"sizeof(f64)", 8},
      {"rank(x)", 2},          {"dim(x, 1)", 7},
      {"stride(x, 0)", 7},     {"stride(x, 1)", 1},
      {"present(x)", 1},       {"present(m)", 0},
      {"align(x, y)", 16},     {"align(x, m)", 16},
      {"align(m)", 256},       {"len(axes)", 2},
      {"axes[0]", 2},          {"axes[1]", -1},
      {"dim(m, 1)", 0},
  };
  for (const Case& c : cases) EXPECT_EQ(Value(c.text), c.value) << c.text;
}

TEST_F(ExpressionTest, KnowsEveryKindOfName) {
  const Case cases[] = {
      {"K", 7},
      {"rows * K", 21},
      {"n + 1", 6},
      {"on", 1},
      {"on ? 1 : 0", 1},
      {"mode == 'causal'", 1},
      {"'none' == mode", 0},
      {"mode != \"none\"", 1},
      {"T == bf16", 1},
      {"T == O", 0},
      {"T != f32", 1},
      {"out == f16", 1},
      {"VEC", 4},
      {"HALF", 3},
      {"sm_count", 132},
      {"(on ? T : O) == bf16", 1},
  };
  for (const Case& c : cases) EXPECT_EQ(Value(c.text), c.value) << c.text;
}

TEST_F(ExpressionTest, LooksOnlyAtTheSideThatDecides) {
  EXPECT_EQ(Value("false && 1 / zero == 0"), 0);
  EXPECT_EQ(Value("true || 1 / zero == 0"), 1);
  EXPECT_EQ(Value("zero == 0 ? 5 : 1 / zero"), 5);
  EXPECT_EQ(Value("zero != 0 ? 1 / zero : 6"), 6);
  EXPECT_EQ(ErrorOf("true && 1 / zero == 0"), SlotError::kDivisionByZero);
  EXPECT_EQ(ErrorOf("1 / zero == 0 && false"), SlotError::kDivisionByZero);
  EXPECT_EQ(ErrorOf("1 / zero == 0 ? 1 : 2"), SlotError::kDivisionByZero);
}

TEST_F(ExpressionTest, CatchesOverflowAndDivisionByZero) {
  const char* overflows[] = {"9223372036854775807 + n",
                             "-9223372036854775807 - n",
                             "4611686018427387904 * n",
                             "-(-9223372036854775807 - 1 + zero)",
                             "abs(-9223372036854775807 - 1 + zero)",
                             "(-9223372036854775807 - 1 + zero) / -1",
                             "(-9223372036854775807 - 1 + zero) % -1",
                             "ceil_div(-9223372036854775807 - 1 + zero, -1)",
                             "next_pow2(4611686018427387905 + zero)"};
  for (const char* text : overflows) EXPECT_EQ(ErrorOf(text), SlotError::kOverflow) << text;
  for (const char* text : {"1 / zero", "1 % zero", "ceil_div(1, zero)", "1 / 0", "1 % 0"}) {
    EXPECT_EQ(ErrorOf(text), SlotError::kDivisionByZero) << text;
  }
  for (const char* text : {"axes[2]", "axes[3]"}) {
    EXPECT_EQ(ErrorOf(text), SlotError::kNoSuchAxis) << text;
  }
}

TEST_F(ExpressionTest, NamesTheExpressionInAnError) {
  std::optional<Compiled> compiled = Compile("K / zero");
  ASSERT_TRUE(compiled);
  Status status = Evaluate(compiled->program, bindings_).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "'K / zero' divides by zero");
}

TEST_F(ExpressionTest, RefusesMixedTypes) {
  const char* bad[] = {"1 + true",   "!1",          "1 && true",  "true < false",  "1 == true",
                       "T == 1",     "T + 1",       "1 ? 2 : 3",  "on ? 1 : true", "mode == 1",
                       "mode == n",  "mode == 'x'", "T == 'f32'", "'a' == 'b'",    "'none'",
                       "scale",      "axes",        "x",          "scale[0]",      "mode == out",
                       "1 < 2 < 3",  "-true",       "min(1)",     "min(1, true)",  "abs(1, 2)",
                       "sizeof(K)",  "sizeof(3)",   "dim(x)",     "dim(x, 2)",     "dim(x, K)",
                       "dim(x, -1)", "axes[4]",     "axes[K]",    "len(n)",        "present(K)",
                       "align()",    "rank(x, y)",  "nope",       "nope(1)",       "n[0]"};
  for (const char* text : bad) {
    EXPECT_FALSE(Compile(text)) << text;
    EXPECT_NE(error_.message, "") << text;
    EXPECT_LE(error_.offset + error_.length, static_cast<int>(std::string(text).size())) << text;
  }
}

TEST_F(ExpressionTest, RefusesBadSyntaxAtTheRightPlace) {
  const std::pair<const char*, int> bad[] = {{"", 0},      {"1 +", 3},
                                             {"(1", 2},    {"1)", 1},
                                             {"1 2", 2},   {"a..b", 1},
                                             {"K = 1", 2}, {"K & 1", 2},
                                             {"0x10", 0},  {"min(1,", 6},
                                             {"K ? 1", 5}, {"1 @ 2", 2},
                                             {"'open", 0}, {"9223372036854775808", 0},
                                             {"x[1", 3}};
  for (const auto& [text, offset] : bad) {
    EXPECT_FALSE(Compile(text)) << text;
    EXPECT_EQ(error_.offset, offset) << text << ": " << error_.message;
  }
}

TEST_F(ExpressionTest, BoundsNestingSizeAndStack) {
  auto nested = [](int levels) {
    return std::string(levels, '(') + "K" + std::string(levels, ')');
  };
  EXPECT_TRUE(Compile(nested(ExpressionParser::kMaxNesting - 1)));
  EXPECT_FALSE(Compile(nested(ExpressionParser::kMaxNesting)));
  EXPECT_FALSE(Compile(nested(100000)));
  EXPECT_FALSE(Compile(std::string(100000, '-') + "K"));

  auto sum = [](int terms) {
    std::string text = "K";
    for (int i = 1; i < terms; ++i) text += " + K";
    return text;
  };
  EXPECT_TRUE(Compile(sum(128)));   // 128 loads, 127 additions
  EXPECT_FALSE(Compile(sum(129)));  // 257 instructions
  EXPECT_NE(error_.message.find("257 instructions, allowed are 256"), std::string::npos);

  auto right = [](int levels) {
    std::string text = "K";
    for (int i = 1; i < levels; ++i) text = "K + (" + text + ")";
    return text;
  };
  ASSERT_TRUE(Compile(right(32)));
  EXPECT_EQ(StackDepth(Compile(right(32))->program.code), 32);
  EXPECT_FALSE(Compile(right(33)));
  EXPECT_NE(error_.message.find("33 stack slots, allowed are 32"), std::string::npos);
}

TEST_F(ExpressionTest, FoldsConstantsButNeverAnError) {
  EXPECT_EQ(Compile("(1 + 2) * 4 - abs(-3)")->program.code.size(), 1u);
  EXPECT_EQ(Compile("K + 2 * 3")->program.code.size(), 3u);
  EXPECT_EQ(Compile("1 / 0")->program.code.size(), 3u);
  EXPECT_EQ(Value("min(2, 3) + K"), 9);
}

TEST_F(ExpressionTest, KeepsEachPlaceToItsNames) {
  struct Rule {
    const char* text;
    bool shape, require, keep, when, let, step, grid;
  };
  const Rule rules[] = {
      {"K", true, true, false, true, true, true, true},
      {"n", true, true, false, true, true, true, true},
      {"sizeof(T)", true, true, true, true, true, true, true},
      {"VEC", false, false, true, true, true, true, true},
      {"HALF", false, false, false, true, true, true, true},
      {"align(x)", false, false, false, true, true, true, true},
      {"stride(x, 0)", false, true, false, true, true, true, true},
      {"rank(y)", false, false, false, true, true, true, true},
      {"rank(x)", true, true, false, true, true, true, true},
      {"sm_count", false, false, false, false, false, false, true},
  };
  for (const Rule& rule : rules) {
    EXPECT_EQ(Compile(rule.text, OperandShapePlace()).has_value(), rule.shape) << rule.text;
    EXPECT_EQ(Compile(rule.text, RequirePlace()).has_value(), rule.require) << rule.text;
    EXPECT_EQ(Compile(rule.text, KeepPlace()).has_value(), rule.keep) << rule.text;
    EXPECT_EQ(Compile(rule.text, WhenPlace()).has_value(), rule.when) << rule.text;
    EXPECT_EQ(Compile(rule.text, LetPlace()).has_value(), rule.let) << rule.text;
    EXPECT_EQ(Compile(rule.text, StepPlace("`block`")).has_value(), rule.step) << rule.text;
    EXPECT_EQ(Compile(rule.text, GridPlace()).has_value(), rule.grid) << rule.text;
  }
}

TEST_F(ExpressionTest, InlinesLetsWhereNobodyComputesThem) {
  std::optional<Compiled> compiled = Compile("HALF > 2", WhenPlace());
  ASSERT_TRUE(compiled);
  for (const Instruction& instruction : compiled->program.code) {
    EXPECT_NE(instruction.opcode, Opcode::kLet);
  }
  bindings_.lets.clear();
  EXPECT_EQ(builder::Run(compiled->program.code, bindings_).value, 1);
}

}  // namespace
}  // namespace kbundle::builder
