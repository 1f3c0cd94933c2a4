// What a score modifier is lowered to for cuDNN computes the same, forward and backward, by cuDNN's
// rules: what is by value is only ever the operand y, only numbers are selected, and queries and
// keys behind the last ones get nothing. What cannot be lowered is refused with the reason.
#include "builder/score/lower.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "builder/score/random.h"

namespace kbundle::builder {
namespace {

using nlohmann::json;

ScoreExpression ParseScore(const std::string& text) {
  ExpressionError error;
  auto parsed = ParseScoreExpression(text, &error);
  EXPECT_TRUE(parsed.has_value()) << text << ": " << error.message;
  return parsed ? *std::move(parsed) : ScoreExpression();
}

// Computes the nodes in order and holds them to cuDNN's rules.
class Interpreter {
 public:
  Interpreter(const ScoreExpression& e, const ScorePoint& point, double gradient)
      : e_(e), point_(point), gradient_(gradient) {}

  double Run(const json& lowered) {
    for (const json& node : lowered.at("nodes")) {
      EXPECT_EQ(node.at("id"), values_.size() + 1) << lowered;
      for (const char* name : {"x", "z"}) {
        EXPECT_FALSE(node.contains(name) && IsByValue(node[name])) << name << " of " << node;
      }
      for (const char* name : {"x", "y"}) {
        EXPECT_FALSE(node.at("mode") == "SELECT" && IsLogic(lowered, node.at(name))) << node;
      }
      values_.push_back(Apply(node));
    }
    EXPECT_FALSE(IsByValue(lowered.at("result"))) << lowered;
    return Of(lowered.at("result"));
  }

 private:
  static bool IsByValue(const json& ref) { return ref.contains("scalar") || ref.contains("value"); }

  // Of the nodes of one list; a backward's may refer to others.
  static bool IsLogic(const json& lowered, const json& ref) {
    for (const json& node : lowered.at("nodes")) {
      const std::string mode = node.at("mode");
      if (ref.contains("node") && node.at("id") == ref.at("node")) {
        return mode.starts_with("CMP_") || mode.starts_with("LOGICAL_");
      }
    }
    return false;
  }

  double Of(const json& ref) const {
    if (ref.contains("node")) return values_.at(ref["node"].get<int>() - 1);
    if (ref.contains("score")) return point_.s;
    if (ref.contains("gradient")) return gradient_;
    if (ref.contains("index"))
      return point_.indices[kScoreIndices.find(ref["index"].get<std::string>())];
    if (ref.contains("value")) return ref["value"];
    if (ref.contains("scalar")) {
      const auto found = std::find(e_.scalars.begin(), e_.scalars.end(), ref["scalar"]);
      return point_.scalars.at(found - e_.scalars.begin());
    }
    for (size_t i = 0; i < e_.tensors.size(); ++i) {
      if (e_.tensors[i].name == ref.at("tensor")) return point_.tensors[i];
    }
    ADD_FAILURE() << ref;
    return 0;
  }

  double Apply(const json& node) const {
    const std::string mode = node.at("mode");
    const double x = Of(node.at("x"));
    const double y = node.contains("y") ? Of(node["y"]) : 0;
    if (mode == "SELECT") return Of(node.at("z")) != 0 ? x : y;
    if (mode == "RECIPROCAL") return 1 / x;
    static const std::map<std::string, ScoreOp> kModes = {
        {"ADD", ScoreOp::kAdd},         {"SUB", ScoreOp::kSub},
        {"MUL", ScoreOp::kMul},         {"DIV", ScoreOp::kDiv},
        {"MIN", ScoreOp::kMin},         {"MAX", ScoreOp::kMax},
        {"ABS", ScoreOp::kAbs},         {"EXP", ScoreOp::kExp},
        {"LOG", ScoreOp::kLog},         {"TANH", ScoreOp::kTanh},
        {"SIGMOID", ScoreOp::kSigmoid}, {"ERF", ScoreOp::kErf},
        {"SQRT", ScoreOp::kSqrt},       {"POW", ScoreOp::kPow},
        {"CMP_EQ", ScoreOp::kEq},       {"CMP_NEQ", ScoreOp::kNe},
        {"CMP_GT", ScoreOp::kGt},       {"CMP_GE", ScoreOp::kGe},
        {"CMP_LT", ScoreOp::kLt},       {"CMP_LE", ScoreOp::kLe},
        {"LOGICAL_AND", ScoreOp::kAnd}, {"LOGICAL_OR", ScoreOp::kOr},
        {"LOGICAL_NOT", ScoreOp::kNot}};
    const auto found = kModes.find(mode);
    EXPECT_NE(found, kModes.end()) << mode;
    if (found == kModes.end()) return 0;
    EXPECT_EQ(ScoreArity(found->second), node.contains("y") ? 2 : 1) << node;
    const double operands[] = {x, y};
    return ApplyScoreOp(found->second, operands);
  }

  const ScoreExpression& e_;
  const ScorePoint& point_;
  const double gradient_;
  std::vector<double> values_;
};

// Which side a comparison with NaN takes is not promised.
bool AllFinite(const ScoreExpression& e, const ScorePoint& point) {
  const std::vector<int> parts = e.graph.Reachable({e.value, e.slope});
  return std::all_of(parts.begin(), parts.end(),
                     [&](int id) { return std::isfinite(EvaluateScore(e.graph, id, point)); });
}

// How many points were compared.
int Compare(const ScoreExpression& e, const json& forward, const json& backward,
            ScoreRandom& random) {
  int compared = 0;
  for (int i = 0; i < 30; ++i) {
    const ScorePoint point = random.Point();
    const double gradient = 0.5 + 0.1 * i;
    Interpreter interpreter(e, point, gradient);
    double largest = 0;
    const double value = EvaluateScore(e.graph, e.value, point, &largest);
    const double slope = gradient * EvaluateScore(e.graph, e.slope, point, &largest);
    const double found = interpreter.Run(forward), found_slope = interpreter.Run(backward);
    if (!AllFinite(e, point) || largest > 1e12) continue;
    EXPECT_NEAR(found, value, 1e-9 * (1 + largest)) << e.text << "\n" << forward;
    EXPECT_NEAR(found_slope, slope, 1e-8 * (1 + largest)) << e.text << "\n" << backward;
    ++compared;
  }
  return compared;
}

TEST(ScoreLower, ComputesTheShippedModifiers) {
  ScoreRandom random(3);
  for (const char* text : kShippedModifiers) {
    const ScoreExpression e = ParseScore(text);
    const auto forward = LowerScoreMod(e), backward = LowerScoreModBackward(e);
    ASSERT_TRUE(forward.ok()) << forward.status().ToString();
    ASSERT_TRUE(backward.ok()) << backward.status().ToString();
    EXPECT_EQ(Compare(e, *forward, *backward, random), 30) << text;
  }
}

TEST(ScoreLower, IsAsWritten) {
  const ScoreExpression e = ParseScore("cap * tanh(s / cap)");
  EXPECT_EQ(LowerScoreMod(e)->dump(),
            R"({"nodes":[{"id":1,"mode":"DIV","x":{"score":true},"y":{"scalar":"cap"}},)"
            R"({"id":2,"mode":"TANH","x":{"node":1}},)"
            R"({"id":3,"mode":"MUL","x":{"node":2},"y":{"scalar":"cap"}}],"result":{"node":3}})");
  EXPECT_EQ(LowerScoreModBackward(e)->dump(),
            R"({"nodes":[{"id":4,"mode":"MUL","x":{"node":2},"y":{"node":2}},)"
            R"({"id":5,"mode":"MUL","x":{"node":4},"y":{"value":-1.0}},)"
            R"({"id":6,"mode":"ADD","x":{"node":5},"y":{"value":1.0}},)"
            R"({"id":7,"mode":"MUL","x":{"gradient":true},"y":{"node":6}}],"result":{"node":7}})");
  const ScoreExpression causal = ParseScore("select(k <= q, s, -1e9)");
  EXPECT_EQ(LowerScoreModBackward(causal)->dump(),
            R"({"nodes":[{"id":3,"mode":"SELECT","x":{"gradient":true},"y":{"value":0.0},)"
            R"("z":{"node":1}}],"result":{"node":3}})");
  EXPECT_EQ(LowerScoreModBackward(ParseScore("s + (q - k)"))->dump(),
            R"({"nodes":[],"result":{"gradient":true}})");
}

TEST(ScoreLower, ComputesRandomModifiers) {
  ScoreRandom random(99);
  int compared = 0;
  for (int i = 0; i < 400; ++i) {
    const ScoreExpression e = ParseScore(random.Modifier());
    const ScorePlan plan{.backward = i % 2 == 1};
    const auto forward = LowerScoreMod(e, plan), backward = LowerScoreModBackward(e, plan);
    ASSERT_TRUE(forward.ok()) << forward.status().ToString();
    ASSERT_TRUE(backward.ok()) << backward.status().ToString();
    compared += Compare(e, *forward, *backward, random);
  }
  EXPECT_GT(compared, 10 * 400);
}

TEST(ScoreLower, TurnsOperationsAboutSoThatValuesComeSecond) {
  ScoreRandom random(5);
  for (const char* text :
       {"1 - s", "cap / s", "pow(2, s)", "s * (cap * gain)", "s / (cap / gain)", "s - (cap - gain)",
        "s + (-cap + 2)", "s + select(k > q, -100, 0)", "select(k > q, -100, s)",
        "select(k > q || h == 1, 3, s)", "max(0, s) * (cap * 2)", "s * select(k > q, cap, 2)",
        "exp(-s)", "1 / (1 + exp(-s))", "select(q == k, 0, 1) * s", "abs(s) - cap"}) {
    const ScoreExpression e = ParseScore(text);
    const auto forward = LowerScoreMod(e), backward = LowerScoreModBackward(e);
    ASSERT_TRUE(forward.ok()) << forward.status().ToString();
    ASSERT_TRUE(backward.ok()) << backward.status().ToString();
    EXPECT_GT(Compare(e, *forward, *backward, random), 10) << text;
  }
}

TEST(ScoreLower, MakesTensorsOfValuesOnlyWhereNothingElseServes) {
  ScoreRandom random(7);
  for (const char* text :
       {"s + exp(cap * gain)", "select(cap > 0, s, 2 * s)", "s + exp(select(q > k, cap, 2))",
        "pow(cap + 4, s)", "select(!(cap > 0), s, gain)", "select(cap > 0 && q > k, cap, gain) + s",
        "s * min(cap, gain) - log(abs(cap) + 1.5)", "min(s, select(k == 2 * q, 1.75, cap))"}) {
    const ScoreExpression e = ParseScore(text);
    const auto forward = LowerScoreMod(e), backward = LowerScoreModBackward(e);
    ASSERT_TRUE(forward.ok()) << forward.status().ToString();
    ASSERT_TRUE(backward.ok()) << backward.status().ToString();
    EXPECT_GT(Compare(e, *forward, *backward, random), 10) << text;
  }
  EXPECT_EQ(LowerScoreMod(ParseScore("s + cap * gain"))->dump(),
            R"({"nodes":[{"id":1,"mode":"MUL","x":{"index":"q"},"y":{"value":0.0}},)"
            R"({"id":2,"mode":"ADD","x":{"node":1},"y":{"scalar":"gain"}},)"
            R"({"id":3,"mode":"MUL","x":{"node":2},"y":{"scalar":"cap"}},)"
            R"({"id":4,"mode":"ADD","x":{"score":true},"y":{"node":3}}],"result":{"node":4}})");
}

TEST(ScoreLower, KeepsQueriesAndKeysBehindTheLastOnesOut) {
  ScoreRandom random(11);
  for (const char* text : {"sqrt(abs(s) + 0.5)", "s", "s * slope[h]", "select(k > q, cap, s)"}) {
    const ScoreExpression e = ParseScore(text);
    const ScorePlan plan{.backward = true, .queries = 7, .keys = 10};
    const auto forward = LowerScoreMod(e, plan), backward = LowerScoreModBackward(e, plan);
    ASSERT_TRUE(forward.ok()) << forward.status().ToString();
    ASSERT_TRUE(backward.ok()) << backward.status().ToString();
    for (const auto& [query, key] : {std::pair(0, 0), {6, 9}, {7, 9}, {6, 10}, {63, 63}}) {
      ScorePoint point = random.Point();
      point.indices[kScoreIndices.find('q')] = query;
      point.indices[kScoreIndices.find('k')] = key;
      const bool inside = query < 7 && key < 10;
      if (!inside) point.s = -INFINITY;
      Interpreter interpreter(e, point, 2.0);
      const double value = EvaluateScore(e.graph, e.value, point);
      const double slope = EvaluateScore(e.graph, e.slope, point);
      EXPECT_EQ(interpreter.Run(*forward), inside ? value : -1e9) << text;
      EXPECT_EQ(interpreter.Run(*backward), inside ? 2.0 * slope : 0.0) << text;
    }
  }
}

// k - q of indices is an integer; cuDNN 9.19 then took the bits of f32 numbers for one.
TEST(ScoreLower, ComputesNoIntegerInABackwardThatHasASlopeToCompute) {
  const auto integers = [](const json& lowered) {
    return std::any_of(lowered["nodes"].begin(), lowered["nodes"].end(), [](const json& node) {
      return (node["mode"] == "SUB" || node["mode"] == "ADD") && node["x"].contains("index") &&
             node["y"].contains("index");
    });
  };
  const ScorePlan plan{.backward = true, .queries = 7, .keys = 10};
  for (const char* text : {"(k - q) / 64 - s / (abs(s) + 1.5)", "s * (q + k)"}) {
    const ScoreExpression e = ParseScore(text);
    EXPECT_TRUE(integers(*LowerScoreMod(e))) << text;
    EXPECT_FALSE(integers(*LowerScoreMod(e, plan))) << text;
    EXPECT_FALSE(integers(*LowerScoreModBackward(e, plan))) << text;
  }
  // Its backward hands the gradient on.
  EXPECT_TRUE(integers(*LowerScoreMod(ParseScore("s + slope[h] * (k - q)"), plan)));
}

TEST(ScoreLower, SaysThatItTakesTooManyNodes) {
  std::string text = "s";
  for (int i = 1; i <= 24; ++i) {
    text = fmt::format("(cap * gain - {} * (cap - select(q < {}, k, 2)))", text, i);
  }
  const auto lowered = LowerScoreModBackward(ParseScore(text));
  ASSERT_FALSE(lowered.ok());
  EXPECT_EQ(lowered.status().code(), StatusCode::kUnimplemented);
  const std::string message(lowered.status().message());
  EXPECT_NE(message.find("takes over 256 nodes"), std::string::npos) << message;
  EXPECT_NE(message.find(text), std::string::npos) << message;
}

}  // namespace
}  // namespace kbundle::builder
