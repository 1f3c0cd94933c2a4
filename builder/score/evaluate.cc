// Two readings of one graph: its value at a point, in double, which a derivative is checked with,
// and its text for messages. `largest` is the greatest magnitude that is rounded on the way: by it
// a difference is told from rounding.
#include <cmath>

#include "builder/score/expression.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {

double EvaluateScore(const ScoreGraph& graph, int node, const ScorePoint& point, double* largest) {
  std::vector<double> values(graph.size());
  for (int id : graph.Reachable({node})) {
    const ScoreNode& at = graph.node(id);
    double operands[3] = {};
    for (int i = 0; i < ScoreArity(at.op); ++i) operands[i] = values[at.operands[i]];
    switch (at.op) {
      case ScoreOp::kConst:
        values[id] = at.number;
        break;
      case ScoreOp::kScore:
        values[id] = point.s;
        break;
      case ScoreOp::kIndex:
        values[id] = point.indices[at.index];
        break;
      case ScoreOp::kScalar:
        values[id] = point.scalars[at.index];
        break;
      case ScoreOp::kTensor:
        values[id] = point.tensors[at.index];
        break;
      default:
        values[id] = ApplyScoreOp(at.op, operands);
    }
    const bool rounds = ScoreArity(at.op) > 0 && at.op != ScoreOp::kSelect;
    if (largest != nullptr && rounds) *largest = std::fmax(*largest, std::fabs(values[id]));
  }
  return values[node];
}

namespace {

// A graph shares what its text would repeat, so the depth is bounded.
std::string Text(const ScoreExpression& expression, int id, int depth) {
  const ScoreNode& node = expression.graph.node(id);
  if (depth == 0 && ScoreArity(node.op) > 0) return "..";
  const auto part = [&](int i) { return Text(expression, node.operands[i], depth - 1); };
  switch (node.op) {
    case ScoreOp::kConst:
      return fmt::format("{}", node.number);
    case ScoreOp::kScore:
      return "s";
    case ScoreOp::kIndex:
      return std::string(1, kScoreIndices[node.index]);
    case ScoreOp::kScalar:
      return expression.scalars[node.index];
    case ScoreOp::kTensor: {
      const ScoreTensor& tensor = expression.tensors[node.index];
      return fmt::format("{}[{}]", tensor.name, fmt::join(tensor.dims, ", "));
    }
    case ScoreOp::kNeg:
    case ScoreOp::kNot:
      return ScoreName(node.op) + part(0);
    case ScoreOp::kMin:
    case ScoreOp::kMax:
    case ScoreOp::kPow:
      return fmt::format("{}({}, {})", ScoreName(node.op), part(0), part(1));
    case ScoreOp::kSelect:
      return fmt::format("select({}, {}, {})", part(0), part(1), part(2));
    default:
      if (ScoreArity(node.op) == 1) return fmt::format("{}({})", ScoreName(node.op), part(0));
      return fmt::format("({} {} {})", part(0), ScoreName(node.op), part(1));
  }
}

}  // namespace

std::string ScoreText(const ScoreExpression& expression, int id) { return Text(expression, id, 4); }

}  // namespace kbundle::builder
