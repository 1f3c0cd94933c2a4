// A score modifier is parsed, typed, simplified without changing values, and differentiated as
// finite differences have it; what is wrong is told with its place and the nearest known name.
#include "builder/score/expression.h"

#include <gtest/gtest.h>

#include <cmath>

#include "builder/score/random.h"

namespace kbundle::builder {
namespace {

ScoreExpression Parse(const std::string& text, bool simplify = true) {
  ExpressionError error;
  auto parsed = ParseScoreExpression(text, &error, simplify);
  EXPECT_TRUE(parsed.has_value()) << text << ": " << error.message;
  return parsed ? *std::move(parsed) : ScoreExpression();
}

std::string Value(const std::string& text) {
  const ScoreExpression e = Parse(text);
  return ScoreText(e, e.value);
}
std::string Slope(const std::string& text) {
  const ScoreExpression e = Parse(text);
  return ScoreText(e, e.slope);
}

double At(const std::string& text, double s) {
  const ScoreExpression e = Parse(text);
  ScorePoint point{s, {1, 2, 7, 4}, {20, 3}, {0.5}};
  return EvaluateScore(e.graph, e.value, point);
}

TEST(ScoreExpression, NamesScalarsAndTensorsInOrderOfAppearance) {
  const ScoreExpression e = Parse("gain * s + slope[h] * cap + table[b, q, k] - gain");
  EXPECT_EQ(e.scalars, (std::vector<std::string>{"gain", "cap"}));
  ASSERT_EQ(e.tensors.size(), 2u);
  EXPECT_EQ(e.tensors[0].name, "slope");
  EXPECT_EQ(e.tensors[0].dims, "h");
  EXPECT_EQ(e.tensors[1].dims, "bqk");
}

TEST(ScoreExpression, HasTheUsualPrecedence) {
  EXPECT_EQ(At("1 + 2 * s - 8 / 4 / 2", 3), 6);
  EXPECT_EQ(At("-s * 2 + -(-s)", 3), -3);
  EXPECT_EQ(At("select(s > 1 && s < 2 || !(q == 7), 1, .25e1)", 3), 2.5);
  EXPECT_EQ(At("select(q - k < 3, s, -1e9)", 3), -1e9);
  EXPECT_EQ(At("min(s, 4, 2) + max(1, s, 5) + pow(abs(-s), 2)", 3), 16);
  EXPECT_EQ(At("slope[h] * (b + h)", 3), 1.5);
}

TEST(ScoreExpression, AnswersWithTheShippedModifiersDerivatives) {
  EXPECT_EQ(Slope("s + slope[h] * (k - q)"), "1");
  EXPECT_EQ(Slope("select(k <= q, s, -1e9)"), "select((k <= q), 1, 0)");
  EXPECT_EQ(Slope("cap * tanh(s / cap)"), "(1 - (tanh((s / cap)) * tanh((s / cap))))");
  EXPECT_EQ(Slope("max(s, 0)"), "select((s >= 0), 1, 0)");
  EXPECT_EQ(Slope("abs(s)"), "select((s >= 0), 1, -1)");
}

TEST(ScoreExpression, SimplifiesWhatDoesNothing) {
  for (const char* text : {"s * 1", "1 * s", "s + 0", "0 + s", "s - 0", "s / 1", "-(-s)",
                           "s + 0 * cap", "cap * (s / cap)", "s * cap / cap", "select(q > k, s, s)",
                           "min(s, s)", "pow(s, 1)", "s * (2 - 1)"}) {
    EXPECT_EQ(Value(text), "s") << text;
  }
  EXPECT_EQ(Value("s + -cap"), "(s - cap)");
  EXPECT_EQ(Value("s * (1 / cap)"), "(s / cap)");
  EXPECT_EQ(Value("0 - s"), "-s");
  EXPECT_EQ(Value("s - s"), "0");
}

TEST(ScoreExpression, ComputesACommonPartOnce) {
  const ScoreExpression e = Parse("tanh(s * cap) + tanh(cap * s) * exp(s * cap)");
  EXPECT_EQ(e.graph.Reachable({e.value}).size(), 7u);  // s, cap, s * cap, tanh, exp, *, +
}

struct Wrong {
  const char* text;
  int offset, length;
  const char* message;
  const char* note;
};

TEST(ScoreExpression, TellsWhatIsWrongAndWhere) {
  const Wrong kWrong[] = {
      {"cap * tahn(s)", 6, 4, "unknown function 'tahn'", "did you mean 'tanh'?"},
      {"s + slope[x]", 10, 1, "a tensor is indexed by b, h, q and k, found 'x'", "slope[h]"},
      {"slope[h, h]", 9, 1, "the index h is there twice", ""},
      {"t[h, b] + s", 5, 1, "the index b must be the first", "batch outermost"},
      {"s + (q < k)", 4, 7, "'+' wants float, but '(q < k)' is bool", "select(c, 1, 0)"},
      {"select(s, 1, 2)", 7, 1, "select wants bool, but 's' is float", "x > 0"},
      {"!s", 1, 1, "'!' wants bool", ""},
      {"q < k", 0, 5, "a score modifier wants float", ""},
      {"q < k < h", 6, 1, "a comparison of a comparison", "a < b && b < c"},
      {"s + ", 4, 1, "expected a name, a number or '(', found the end", ""},
      {"(s", 2, 1, "expected ')' to close the parenthesis, found the end", ""},
      {"s s", 2, 1, "expected an operator or the end, found 's'", ""},
      {"s = 1", 2, 1, "expected an operator or the end", "=="},
      {"1.2.3 * s", 0, 5, "'1.2.3' is no number", ""},
      {"12abc", 0, 5, "'12abc' is no number", ""},
      {"s * 1e39", 4, 4, "1e39 does not fit f32", ""},
      {"s # 2", 2, 1, "no token begins like this", ""},
      {"s ? 1 : 2", 2, 1, "no token begins like this", ""},
      {"s & 1", 2, 1, "no token begins like this", ""},
      {"tanh * s", 0, 4, "'tanh' is a function", "tanh(..)"},
      {"tanh(s, 1)", 0, 10, "tanh takes 1 argument, found 2", ""},
      {"min(s)", 0, 6, "min takes 2 or more arguments, found 1", ""},
      {"tanh()", 0, 6, "tanh takes 1 argument, found 0", ""},
      {"cap + cap[h]", 6, 6, "'cap' is a scalar already", ""},
      {"cap[h] + cap", 9, 3, "'cap' is a tensor", "cap[h]"},
      {"t[h] + t[q]", 7, 4, "'t' has other indices than before", "t[h]"},
      {"s[h]", 0, 4, "'s' is no tensor", ""},
      {"u[h] + v[h] + w[h]", 14, 4, "'w' is one tensor too many, allowed are 2", ""},
      {"a + c + d + e + f + g + i + j + l", 32, 1, "'l' is one scalar too many", "a, c, d"},
      {"", 0, 1, "expected a name", ""},
  };
  for (const Wrong& wrong : kWrong) {
    ExpressionError error;
    EXPECT_FALSE(ParseScoreExpression(wrong.text, &error).has_value()) << wrong.text;
    EXPECT_EQ(error.offset, wrong.offset) << wrong.text;
    EXPECT_EQ(error.length, wrong.length) << wrong.text;
    EXPECT_NE(error.message.find(wrong.message), std::string::npos)
        << wrong.text << ": " << error.message;
    EXPECT_NE(error.note.find(wrong.note), std::string::npos) << wrong.text << ": " << error.note;
  }
}

TEST(ScoreExpression, RefusesWhatWouldExhaustTheStack) {
  for (const std::string& deep :
       {std::string(100000, '('), std::string(100000, '-'), std::string(100000, '!')}) {
    ExpressionError error;
    EXPECT_FALSE(ParseScoreExpression(deep + "s", &error).has_value());
    EXPECT_FALSE(error.message.empty());
  }
  std::string calls, sum = "s";
  for (int i = 0; i < 5000; ++i) calls += "tanh(", sum += " + tanh(s * " + std::to_string(i) + ")";
  ExpressionError error;
  EXPECT_FALSE(ParseScoreExpression(calls, &error).has_value());
  EXPECT_FALSE(ParseScoreExpression(sum, &error).has_value());
  EXPECT_NE(error.message.find("allowed are 256"), std::string::npos) << error.message;
}

TEST(ScoreExpression, SurvivesAnyBytes) {
  ScoreRandom random(11);
  const std::string alphabet = "sbhqk cap[],()+-*/<>=!&|.0123e\"\n\xff";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int n = random.Below(14); n >= 0; --n) text += alphabet[random.Below(alphabet.size())];
    ExpressionError error;
    const auto parsed = ParseScoreExpression(text, &error);
    EXPECT_EQ(parsed.has_value(), error.message.empty()) << text;
    EXPECT_LE(error.offset, static_cast<int>(text.size()));
  }
}

TEST(ScoreSlope, AgreesWithDifferencesForRandomExpressions) {
  ScoreRandom random(20251);
  int compared = 0, passed_over = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string text = random.Modifier();
    const SlopeCheck check = CheckSlope(Parse(text));
    EXPECT_EQ(check.mismatch, "") << text;
    compared += check.compared;
    passed_over += check.passed_over;
  }
  EXPECT_GT(compared, passed_over) << compared << " points compared, " << passed_over << " not";
}

TEST(ScoreSlope, OfShippedModifiersIsComparedAtMostPoints) {
  for (const char* text : kShippedModifiers) {
    const SlopeCheck check = CheckSlope(Parse(text));
    EXPECT_EQ(check.mismatch, "") << text;
    EXPECT_GT(check.compared, 3 * check.passed_over) << text;
  }
}

TEST(ScoreSlope, CheckFindsAWrongOne) {
  int found = 0;
  for (const char* text : kShippedModifiers) {
    ScoreExpression e = Parse(text);
    e.slope = e.graph.Make(ScoreOp::kMul, e.slope, e.graph.Constant(1.01));
    found += !CheckSlope(e).mismatch.empty();
  }
  EXPECT_EQ(found, std::size(kShippedModifiers));
}

TEST(ScoreSimplification, KeepsValues) {
  ScoreRandom random(7);
  int compared = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string text = random.Modifier();
    const ScoreExpression plain = Parse(text, false), simple = Parse(text);
    EXPECT_LE(simple.graph.Reachable({simple.value}).size(),
              plain.graph.Reachable({plain.value}).size());
    ScorePoint point;
    for (int j = 0; j < 20; ++j) {
      point = random.Point();
      for (auto [root, other] :
           {std::pair(plain.value, simple.value), std::pair(plain.slope, simple.slope)}) {
        double largest = 0;
        const double wanted = EvaluateScore(plain.graph, root, point, &largest);
        const double found = EvaluateScore(simple.graph, other, point, &largest);
        if (!std::isfinite(wanted) || largest > 1e12) continue;
        EXPECT_NEAR(found, wanted, 1e-9 * (1 + largest)) << text;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 6000);
}

}  // namespace
}  // namespace kbundle::builder
