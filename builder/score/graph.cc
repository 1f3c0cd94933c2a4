// Make is the only way to an operation: simplify, bring commuting operands into one order, then
// look up what is there already. So a derivative, which repeats its expression many times, grows by
// its new parts alone. Constants that f32 does not hold as normal numbers are not folded, for code
// computes in f32.
#include "builder/score/graph.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace kbundle::builder {

int ScoreArity(ScoreOp op) {
  if (op <= ScoreOp::kTensor) return 0;
  if (op == ScoreOp::kSelect) return 3;
  bool unary = (op >= ScoreOp::kNeg && op <= ScoreOp::kFastTanh) || op == ScoreOp::kNot;
  return unary ? 1 : 2;
}

const char* ScoreName(ScoreOp op) {
  constexpr const char* kNames[] = {
      "number", "s",       "index", "scalar", "tensor",   "+",         "-",   "*",
      "/",      "min",     "max",   "pow",    "-",        "abs",       "exp", "log",
      "tanh",   "sigmoid", "erf",   "sqrt",   "fast_exp", "fast_tanh", "==",  "!=",
      "<",      "<=",      ">",     ">=",     "&&",       "||",        "!",   "select"};
  static_assert(std::size(kNames) == static_cast<size_t>(ScoreOp::kSelect) + 1);
  return kNames[static_cast<int>(op)];
}

double ApplyScoreOp(ScoreOp op, const double* x) {
  switch (op) {
    case ScoreOp::kAdd:
      return x[0] + x[1];
    case ScoreOp::kSub:
      return x[0] - x[1];
    case ScoreOp::kMul:
      return x[0] * x[1];
    case ScoreOp::kDiv:
      return x[0] / x[1];
    case ScoreOp::kMin:
      return x[0] <= x[1] ? x[0] : x[1];
    case ScoreOp::kMax:
      return x[0] >= x[1] ? x[0] : x[1];
    case ScoreOp::kPow:
      return std::pow(x[0], x[1]);
    case ScoreOp::kNeg:
      return -x[0];
    case ScoreOp::kAbs:
      return std::fabs(x[0]);
    case ScoreOp::kExp:
    case ScoreOp::kFastExp:
      return std::exp(x[0]);
    case ScoreOp::kLog:
      return std::log(x[0]);
    case ScoreOp::kTanh:
    case ScoreOp::kFastTanh:
      return std::tanh(x[0]);
    case ScoreOp::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x[0]));
    case ScoreOp::kErf:
      return std::erf(x[0]);
    case ScoreOp::kSqrt:
      return std::sqrt(x[0]);
    case ScoreOp::kEq:
      return x[0] == x[1];
    case ScoreOp::kNe:
      return x[0] != x[1];
    case ScoreOp::kLt:
      return x[0] < x[1];
    case ScoreOp::kLe:
      return x[0] <= x[1];
    case ScoreOp::kGt:
      return x[0] > x[1];
    case ScoreOp::kGe:
      return x[0] >= x[1];
    case ScoreOp::kAnd:
      return x[0] != 0 && x[1] != 0;
    case ScoreOp::kOr:
      return x[0] != 0 || x[1] != 0;
    case ScoreOp::kNot:
      return x[0] == 0;
    case ScoreOp::kSelect:
      return x[0] != 0 ? x[1] : x[2];
    default:
      return 0;  // leaves have no operation
  }
}

int ScoreGraph::Intern(const ScoreNode& node) {
  const Key key = {node.op, node.index, node.number, node.operands};
  const auto [found, fresh] = known_.try_emplace(key, size());
  if (!fresh) return found->second;
  bool depends = node.op == ScoreOp::kScore;
  for (int operand : node.operands) depends = depends || (operand >= 0 && depends_[operand]);
  nodes_.push_back(node);
  depends_.push_back(depends);
  return size() - 1;
}

int ScoreGraph::Constant(double number) {
  if (number == 0) number = 0;  // -0 and 0 are one node
  return Intern({ScoreOp::kConst, 0, number, {-1, -1, -1}});
}

int ScoreGraph::Leaf(ScoreOp op, int index) { return Intern({op, index, 0, {-1, -1, -1}}); }

int ScoreGraph::Make(ScoreOp op, int a, int b, int c) {
  if (simplify_) {
    if (int simpler = Simplify(op, a, b, c); simpler >= 0) return simpler;
    // One order for what has none; constants last. min and max keep theirs: it decides a tie.
    bool commutes = op == ScoreOp::kAdd || op == ScoreOp::kMul || op == ScoreOp::kEq ||
                    op == ScoreOp::kNe || op == ScoreOp::kAnd || op == ScoreOp::kOr;
    if (commutes && std::pair(IsConstant(a), a) > std::pair(IsConstant(b), b)) std::swap(a, b);
  }
  return Intern({op, 0, 0, {a, b, c}});
}

// Numbers that f32 cannot hold stay operations: they are computed where they are used. Booleans
// stay as well, there is no constant of theirs.
int ScoreGraph::Fold(const ScoreNode& node) {
  if (IsBoolean(node.op) || node.op == ScoreOp::kSelect) return -1;
  double values[3] = {};
  for (int i = 0; i < ScoreArity(node.op); ++i) {
    if (!IsConstant(node.operands[i])) return -1;
    values[i] = nodes_[node.operands[i]].number;
  }
  const double folded = ApplyScoreOp(node.op, values);
  const bool fits = folded == 0 || (std::fabs(folded) >= FLT_MIN && std::fabs(folded) <= FLT_MAX);
  return fits ? Constant(folded) : -1;
}

int ScoreGraph::Simplify(ScoreOp op, int a, int b, int c) {
  if (int folded = Fold({op, 0, 0, {a, b, c}}); folded >= 0) return folded;
  switch (op) {
    case ScoreOp::kAdd:
      return SimplifyAdd(a, b);
    case ScoreOp::kSub:
      return SimplifySub(a, b);
    case ScoreOp::kMul:
      return SimplifyMul(a, b);
    case ScoreOp::kDiv:
      return SimplifyDiv(a, b);
    case ScoreOp::kPow:
      return SimplifyPow(a, b);
    case ScoreOp::kMin:
    case ScoreOp::kMax:
    case ScoreOp::kAnd:
    case ScoreOp::kOr:
      return a == b ? a : -1;
    case ScoreOp::kNeg:
      if (Is(a, ScoreOp::kNeg)) return Operand(a, 0);
      if (Is(a, ScoreOp::kSub)) return Make(ScoreOp::kSub, Operand(a, 1), Operand(a, 0));
      return -1;
    case ScoreOp::kAbs:
      if (Is(a, ScoreOp::kAbs)) return a;
      return Is(a, ScoreOp::kNeg) ? Make(ScoreOp::kAbs, Operand(a, 0)) : -1;
    case ScoreOp::kNot:
      return Is(a, ScoreOp::kNot) ? Operand(a, 0) : -1;
    case ScoreOp::kSelect:
      return SimplifySelect(a, b, c);
    default:
      return -1;
  }
}

int ScoreGraph::SimplifyAdd(int a, int b) {
  if (IsConstant(a, 0)) return b;
  if (IsConstant(b, 0)) return a;
  if (Is(b, ScoreOp::kNeg)) return Make(ScoreOp::kSub, a, Operand(b, 0));
  if (Is(a, ScoreOp::kNeg)) return Make(ScoreOp::kSub, b, Operand(a, 0));
  return -1;
}

int ScoreGraph::SimplifySub(int a, int b) {
  if (IsConstant(b, 0)) return a;
  if (IsConstant(a, 0)) return Make(ScoreOp::kNeg, b);
  if (a == b) return Constant(0);
  if (Is(b, ScoreOp::kNeg)) return Make(ScoreOp::kAdd, a, Operand(b, 0));
  return -1;
}

int ScoreGraph::SimplifyMul(int a, int b) {
  if (IsConstant(a)) std::swap(a, b);
  if (IsConstant(b, 0)) return b;
  if (IsConstant(b, 1)) return a;
  if (IsConstant(b, -1)) return Make(ScoreOp::kNeg, a);
  if (Is(a, ScoreOp::kNeg) && Is(b, ScoreOp::kNeg)) {
    return Make(ScoreOp::kMul, Operand(a, 0), Operand(b, 0));
  }
  for (auto [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    if (!Is(y, ScoreOp::kDiv)) continue;
    if (Operand(y, 1) == x) return Operand(y, 0);                                    // x * (z / x)
    if (IsConstant(Operand(y, 0), 1)) return Make(ScoreOp::kDiv, x, Operand(y, 1));  // x * (1 / z)
  }
  return -1;
}

int ScoreGraph::SimplifyDiv(int a, int b) {
  if (IsConstant(b, 1)) return a;
  if (IsConstant(b, -1)) return Make(ScoreOp::kNeg, a);
  if (IsConstant(a, 0)) return a;
  if (a == b) return Constant(1);
  if (Is(a, ScoreOp::kMul) && Operand(a, 0) == b) return Operand(a, 1);
  if (Is(a, ScoreOp::kMul) && Operand(a, 1) == b) return Operand(a, 0);
  return -1;
}

int ScoreGraph::SimplifyPow(int a, int b) {
  if (IsConstant(b, 0)) return Constant(1);
  if (IsConstant(b, 1)) return a;
  if (IsConstant(b, 2)) return Make(ScoreOp::kMul, a, a);
  if (IsConstant(b, 0.5)) return Make(ScoreOp::kSqrt, a);
  if (IsConstant(b, -1)) return Make(ScoreOp::kDiv, Constant(1), a);
  return -1;
}

int ScoreGraph::SimplifySelect(int condition, int a, int b) {
  if (a == b) return a;
  if (Is(condition, ScoreOp::kNot)) return Make(ScoreOp::kSelect, Operand(condition, 0), b, a);
  // Of one condition within itself only one side is ever taken.
  if (Is(a, ScoreOp::kSelect) && Operand(a, 0) == condition) {
    return Make(ScoreOp::kSelect, condition, Operand(a, 1), b);
  }
  if (Is(b, ScoreOp::kSelect) && Operand(b, 0) == condition) {
    return Make(ScoreOp::kSelect, condition, a, Operand(b, 2));
  }
  return -1;
}

std::vector<int> ScoreGraph::Reachable(const std::vector<int>& roots) const {
  std::vector<bool> wanted(nodes_.size());
  for (int root : roots) wanted[root] = true;
  for (int id = size() - 1; id >= 0; --id) {
    if (!wanted[id]) continue;
    for (int operand : nodes_[id].operands) {
      if (operand >= 0) wanted[operand] = true;
    }
  }
  std::vector<int> out;
  for (int id = 0; id < size(); ++id) {
    if (wanted[id]) out.push_back(id);
  }
  return out;
}

}  // namespace kbundle::builder
