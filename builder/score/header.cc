// A statement for each node, in the graph's order, each value named once: no compiler has to find
// again what is shared. Parameters are named only where they are used, so that no compiler warns.
#include "builder/score/header.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

constexpr char kBegin[] = R"text(
#pragma once

#include "kbundle/score_math.h"

// Scalars and tensors in the order in which an expression names them. A tensor is dense over the
// dims it names; the row of b is its outermost.
struct ScoreArgs {
  float scalars[8];
  const float* tensor0;
  const float* tensor1;
  int heads, queries, keys;
};

)text";

constexpr char kFast[] = "#include \"kbundle/score_fast_math.h\"\n\n";

constexpr char kNone[] = R"text(
template <int MOD>
struct ScoreMod;

template <>
struct ScoreMod<0> {  // none
  static constexpr bool kIdentity = true;
  KB_SCORE static float Apply(float s, int, int, int, int, const ScoreArgs&) { return s; }
  KB_SCORE static float Slope(float, int, int, int, int, const ScoreArgs&) { return 1.0f; }
};
)text";

constexpr char kDispatch[] = R"text(
// f(ScoreMod<mod>()) for a number that only run time knows.
template <int MOD = 0, typename Function>
KB_SCORE void WithScoreMod(int mod, const Function& f) {
  if (mod == MOD) {
    f(ScoreMod<MOD>());
  } else if constexpr (MOD + 1 < kScoreMods) {
    WithScoreMod<MOD + 1>(mod, f);
  }
}
)text";

// One function: a statement for each node that is no leaf.
class FunctionWriter {
 public:
  FunctionWriter(const ScoreExpression& expression, int root)
      : graph_(expression.graph), expression_(expression), root_(root) {}

  std::string Write(const char* name) {
    std::string body;
    for (int id : Needed()) body += Statement(id);
    return fmt::format("  KB_SCORE static float {}({}) {{\n{}    return {};\n  }}\n", name,
                       Parameters(), body, Value(root_));
  }

 private:
  // A comparison of whole numbers is made of integers, without the nodes below it: on a GPU a
  // conversion to float costs as much as eight additions.
  bool ComparesIntegers(const ScoreNode& node) const {
    return IsComparison(node.op) && IsInteger(node.operands[0]) && IsInteger(node.operands[1]);
  }

  bool IsInteger(int id) const {
    const ScoreNode& node = graph_.node(id);
    if (node.op == ScoreOp::kIndex) return true;
    if (node.op == ScoreOp::kConst) {
      return node.number == std::trunc(node.number) && std::fabs(node.number) < (1 << 24);
    }
    const bool sum = node.op == ScoreOp::kAdd || node.op == ScoreOp::kSub;
    return sum && IsInteger(node.operands[0]) && IsInteger(node.operands[1]);
  }

  // "q - k"; an operand that is a sum has parentheses.
  std::string Integer(int id, bool inside) {
    const ScoreNode& node = graph_.node(id);
    if (node.op == ScoreOp::kConst) return fmt::format("{}", static_cast<int>(node.number));
    if (node.op == ScoreOp::kIndex) {
      indices_[node.index] = true;
      return std::string(1, kScoreIndices[node.index]);
    }
    const std::string sum = fmt::format("{} {} {}", Integer(node.operands[0], true),
                                        ScoreName(node.op), Integer(node.operands[1], true));
    return inside ? "(" + sum + ")" : sum;
  }

  std::vector<int> Needed() const {
    std::vector<bool> wanted(graph_.size());
    std::vector<int> out;
    wanted[root_] = true;
    for (int id = root_; id >= 0; --id) {
      if (!wanted[id]) continue;
      out.insert(out.begin(), id);
      if (ComparesIntegers(graph_.node(id))) continue;
      for (int operand : graph_.node(id).operands) {
        if (operand >= 0) wanted[operand] = true;
      }
    }
    return out;
  }

  std::string Parameters() {
    std::string out = score_ ? "float s" : "float";
    for (int i = 0; i < 4; ++i) {
      out += ", int";
      if (indices_[i]) out += fmt::format(" {}", kScoreIndices[i]);
    }
    return out + (arguments_ ? ", const ScoreArgs& a" : ", const ScoreArgs&");
  }

  std::string Statement(int id) {
    const ScoreNode& node = graph_.node(id);
    switch (node.op) {
      case ScoreOp::kConst:
        return {};
      case ScoreOp::kScore:
        score_ = true;
        return {};
      case ScoreOp::kIndex:
        indices_[node.index] = true;
        return fmt::format("    const float v{} = static_cast<float>({});\n", id,
                           kScoreIndices[node.index]);
      case ScoreOp::kScalar:
        arguments_ = true;
        return fmt::format("    const float v{} = a.scalars[{}];  // {}\n", id, node.index,
                           expression_.scalars[node.index]);
      case ScoreOp::kTensor:
        arguments_ = true;
        return fmt::format("    const float v{} = a.tensor{}[{}];  // {}\n", id, node.index,
                           Place(expression_.tensors[node.index].dims),
                           expression_.tensors[node.index].name);
      default:
        return fmt::format("    const {} v{} = {};\n", IsBoolean(node.op) ? "bool" : "float", id,
                           Operation(node));
    }
  }

  // "b * a.heads + h": 64-bit where two dims multiply.
  std::string Place(const std::string& dims) {
    std::string out;
    for (size_t i = 0; i < dims.size(); ++i) {
      const size_t index = kScoreIndices.find(dims[i]);
      indices_[index] = true;
      const std::string at = Inside(index);
      if (i == 0) {
        out = dims.size() > 1 ? fmt::format("static_cast<long long>({})", at) : at;
      } else {
        out = fmt::format("{} * {} + {}", i == 1 ? out : "(" + out + ")", kSizes[index], at);
      }
    }
    return out;
  }

  // Tiles end past the last query and the last key. What a modifier gives there is hidden
  // afterwards, but its tensors have to be read inside: the last element is. Batches and heads are
  // those of the problem.
  static std::string Inside(size_t index) {
    const char dim = kScoreIndices[index];
    if (dim != 'q' && dim != 'k') return std::string(1, dim);
    return fmt::format("({0} < {1} ? {0} : {1} - 1)", dim, kSizes[index]);
  }

  std::string Operation(const ScoreNode& node) {
    if (ComparesIntegers(node)) {
      return fmt::format("{} {} {}", Integer(node.operands[0], false), ScoreName(node.op),
                         Integer(node.operands[1], false));
    }
    const auto value = [&](int i) { return Value(node.operands[i]); };
    switch (node.op) {
      case ScoreOp::kMin:
        return Call("Min", node);
      case ScoreOp::kMax:
        return Call("Max", node);
      case ScoreOp::kDiv:
        return Call("Div", node);
      case ScoreOp::kPow:
        return Call("Pow", node);
      case ScoreOp::kAbs:
        return Call("Abs", node);
      case ScoreOp::kExp:
        return Call("Exp", node);
      case ScoreOp::kLog:
        return Call("Log", node);
      case ScoreOp::kTanh:
        return Call("Tanh", node);
      case ScoreOp::kSigmoid:
        return Call("Sigmoid", node);
      case ScoreOp::kErf:
        return Call("Erf", node);
      case ScoreOp::kSqrt:
        return Call("Sqrt", node);
      case ScoreOp::kFastExp:
        return Call("FastExp", node);
      case ScoreOp::kFastTanh:
        return Call("FastTanh", node);
      case ScoreOp::kSelect:
        return fmt::format("{} ? {} : {}", value(0), value(1), value(2));
      case ScoreOp::kNeg:
      case ScoreOp::kNot:
        return ScoreName(node.op) + value(0);
      default:
        return fmt::format("{} {} {}", value(0), ScoreName(node.op), value(1));
    }
  }

  std::string Call(const char* function, const ScoreNode& node) {
    std::string out = fmt::format("kbundle::score::{}({}", function, Value(node.operands[0]));
    if (node.operands[1] >= 0) out += ", " + Value(node.operands[1]);
    return out + ")";
  }

  std::string Value(int id) const {
    const ScoreNode& node = graph_.node(id);
    if (node.op == ScoreOp::kScore) return "s";
    if (node.op != ScoreOp::kConst) return fmt::format("v{}", id);
    std::string number = fmt::format("{:.9g}", std::fabs(node.number));
    if (number.find_first_of(".e") == std::string::npos) number += ".0";
    return node.number < 0 ? fmt::format("(-{}f)", number) : number + "f";
  }

  static constexpr const char* kSizes[] = {"", "a.heads", "a.queries", "a.keys"};

  const ScoreGraph& graph_;
  const ScoreExpression& expression_;
  const int root_;
  bool score_ = false, arguments_ = false;
  bool indices_[4] = {};
};

// Of an older family nothing changes, and no kernel is compiled again.
bool IsFast(const ScoreMod& mod) {
  const ScoreExpression& e = mod.expression;
  const std::vector<int> nodes = e.graph.Reachable({e.value, e.slope});
  return std::any_of(nodes.begin(), nodes.end(), [&](int id) {
    const ScoreOp op = e.graph.node(id).op;
    return op == ScoreOp::kFastExp || op == ScoreOp::kFastTanh;
  });
}

}  // namespace

std::string ScoreHeader(const std::vector<ScoreMod>& mods) {
  std::string out = "// Made by kbundle from the score modifiers of the family's manifest.";
  out += kBegin;
  if (std::any_of(mods.begin(), mods.end(), IsFast)) out += kFast;
  out += fmt::format("inline constexpr int kScoreMods = {};\n", mods.size() + 1);
  out += kNone;
  for (size_t i = 0; i < mods.size(); ++i) {
    const ScoreExpression& e = mods[i].expression;
    const bool identity = e.graph.node(e.value).op == ScoreOp::kScore;
    out += fmt::format("\ntemplate <>\nstruct ScoreMod<{}> {{  // {}\n", i + 1, mods[i].name);
    out += fmt::format("  static constexpr bool kIdentity = {};\n", identity);
    out += FunctionWriter(e, e.value).Write("Apply") + FunctionWriter(e, e.slope).Write("Slope");
    out += "};\n";
  }
  return out + kDispatch;
}

}  // namespace kbundle::builder
