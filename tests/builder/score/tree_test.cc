// What Python gets of a modifier computes what the modifier says, node by node, and the trees that
// tests/cute/score_trees.json holds for the tests of those that read them are what is made today.
#include "builder/score/tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "builder/score/random.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

ScoreMod TreeMod(const std::string& text) {
  ExpressionError error;
  auto parsed = ParseScoreExpression(text, &error);
  EXPECT_TRUE(parsed.has_value()) << text << ": " << error.message;
  return {"m", parsed ? *std::move(parsed) : ScoreExpression()};
}

// The operations by name and number of operands, of which "-" has two.
const std::map<std::pair<std::string, int>, ScoreOp>& Operations() {
  static const auto operations = [] {
    std::map<std::pair<std::string, int>, ScoreOp> all;
    for (int op = static_cast<int>(ScoreOp::kAdd); op <= static_cast<int>(ScoreOp::kSelect); ++op) {
      const auto one = static_cast<ScoreOp>(op);
      all[{ScoreName(one), ScoreArity(one)}] = one;
    }
    return all;
  }();
  return operations;
}

double NodeValue(const Json& tree, size_t number, const ScorePoint& point) {
  const Json& node = tree.at("nodes").at(number);
  const std::string name = node.at(0);
  if (name == "s") return point.s;
  if (name == "number") return node.at(1);
  if (name == "index") return point.indices[kScoreIndices.find(node.at(1).get<std::string>())];
  if (name == "scalar") return point.scalars[node.at(1).get<size_t>()];
  if (name == "tensor") return point.tensors[node.at(1).get<size_t>()];
  double operands[3] = {};
  for (size_t i = 1; i < node.size(); ++i) {
    EXPECT_LT(node.at(i).get<size_t>(), number);
    operands[i - 1] = NodeValue(tree, node.at(i), point);
  }
  return ApplyScoreOp(Operations().at({name, static_cast<int>(node.size()) - 1}), operands);
}

TEST(ScoreTree, ComputesWhatTheExpressionDoes) {
  ScoreRandom random(7);
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    const ScoreMod mod = TreeMod(random.Modifier());
    const Json tree = Json::parse(ScoreTree(mod).dump());
    const ScorePoint point = random.Point();
    for (const auto& [name, root] :
         {std::pair("value", mod.expression.value), {"slope", mod.expression.slope}}) {
      const double wanted = EvaluateScore(mod.expression.graph, root, point);
      const double found = NodeValue(tree, tree.at(name), point);
      EXPECT_TRUE(found == wanted || (std::isnan(found) && std::isnan(wanted)))
          << mod.expression.text << ", " << name << ": " << found << " instead of " << wanted;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 120);
}

TEST(ScoreTree, HoldsNothingThatNobodyNeeds) {
  EXPECT_EQ(ScoreTree(TreeMod("cap * tanh(s / cap)")),
            Json::parse(R"({"nodes": [["scalar", 0], ["s"], ["/", 1, 0], ["tanh", 2], ["*", 0, 3],
                                      ["number", 1.0], ["*", 3, 3], ["-", 5, 6]],
                            "value": 4, "slope": 7, "scalars": 1, "tensors": []})"));
}

// With KB_RECORD they are written anew.
TEST(ScoreTree, IsWhatWasRecorded) {
  const std::string path = testing::SourceDir() + "/tests/cute/score_trees.json";
  std::ifstream in(path);
  Json recorded = Json::parse(in);
  ASSERT_GE(recorded.size(), 30u);
  for (Json& one : recorded) {
    const Json tree = ScoreTree(TreeMod(one.at("text")));
    if (std::getenv("KB_RECORD") != nullptr) one["tree"] = tree;
    EXPECT_EQ(one.at("tree"), tree) << one.at("text");
  }
  if (std::getenv("KB_RECORD") == nullptr) return;
  std::ofstream out(path);
  for (size_t i = 0; i < recorded.size(); ++i) out << (i ? ",\n " : "[") << recorded[i].dump();
  out << "]\n";
}

}  // namespace
}  // namespace kbundle::builder
