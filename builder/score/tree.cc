// The nodes that the value and the slope need, numbered anew: what the parser made on its way and
// nobody uses is not there.
#include "builder/score/tree.h"

#include <map>

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Json LeafOf(const ScoreNode& node) {
  switch (node.op) {
    case ScoreOp::kConst:
      return {"number", node.number};
    case ScoreOp::kIndex:
      return {"index", std::string(1, kScoreIndices[static_cast<size_t>(node.index)])};
    case ScoreOp::kScalar:
      return {"scalar", node.index};
    case ScoreOp::kTensor:
      return {"tensor", node.index};
    default:
      return Json::array({"s"});
  }
}

}  // namespace

Json ScoreTree(const ScoreMod& mod) {
  const ScoreExpression& expression = mod.expression;
  Json nodes = Json::array(), tensors = Json::array();
  std::map<int, size_t> places;
  for (const int id : expression.graph.Reachable({expression.value, expression.slope})) {
    const ScoreNode& node = expression.graph.node(id);
    Json row = ScoreArity(node.op) == 0 ? LeafOf(node) : Json::array({ScoreName(node.op)});
    for (int i = 0; i < ScoreArity(node.op); ++i) row.push_back(places.at(node.operands[i]));
    places[id] = nodes.size();
    nodes.push_back(std::move(row));
  }
  for (const ScoreTensor& tensor : expression.tensors) tensors.push_back(tensor.dims);
  return {{"nodes", nodes},
          {"value", places.at(expression.value)},
          {"slope", places.at(expression.slope)},
          {"scalars", expression.scalars.size()},
          {"tensors", tensors}};
}

}  // namespace kbundle::builder
