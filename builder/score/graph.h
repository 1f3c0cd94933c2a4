// A score modifier as a graph of operations over floats and booleans: every distinct operation is
// one node, so what an expression says twice is computed once, in its value, in its derivative and
// in both together.
//
// Simplification happens as nodes are made: constants fold, and x*0, x*1, x+0, -(-x), c*(x/c) and
// their like vanish. It may make a value out of something that was not finite (0 * log(-1) is 0),
// never the other way about; elsewhere it changes roundings at most.
#ifndef KBUNDLE_BUILDER_SCORE_GRAPH_H_
#define KBUNDLE_BUILDER_SCORE_GRAPH_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace kbundle::builder {

enum class ScoreOp : uint8_t {
  kConst,   // number
  kScore,   // the scaled score s
  kIndex,   // index: 0 b, 1 h, 2 q, 3 k
  kScalar,  // index: of ScoreExpression::scalars
  kTensor,  // index: of ScoreExpression::tensors
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMin,
  kMax,
  kPow,
  kNeg,
  kAbs,
  kExp,
  kLog,
  kTanh,
  kSigmoid,
  kErf,
  kSqrt,
  kFastExp,  // the same values by a faster, less exact instruction where the target has one
  kFastTanh,
  kEq,  // from here to kNot: booleans
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kNot,
  kSelect,  // operands: condition, then, else; floats
};

inline constexpr std::string_view kScoreIndices = "bhqk";

int ScoreArity(ScoreOp op);
inline bool IsComparison(ScoreOp op) { return op >= ScoreOp::kEq && op <= ScoreOp::kGe; }
inline bool IsBoolean(ScoreOp op) { return op >= ScoreOp::kEq && op <= ScoreOp::kNot; }
// "min", "tanh", "select"; an operator's sign for + - * / comparisons && || !.
const char* ScoreName(ScoreOp op);

struct ScoreNode {
  ScoreOp op = ScoreOp::kConst;
  int index = 0;
  double number = 0;
  std::array<int, 3> operands = {-1, -1, -1};
};

// A value. Nodes are numbered in the order made, operands before what uses them.
class ScoreGraph {
 public:
  // simplify = false keeps every operation as written; for tests.
  explicit ScoreGraph(bool simplify = true) : simplify_(simplify) {}

  int Constant(double number);
  int Leaf(ScoreOp op, int index = 0);
  int Make(ScoreOp op, int a, int b = -1, int c = -1);

  const ScoreNode& node(int id) const { return nodes_[id]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  bool IsConstant(int id) const { return nodes_[id].op == ScoreOp::kConst; }
  bool IsConstant(int id, double number) const {
    return IsConstant(id) && nodes_[id].number == number;
  }
  bool DependsOnScore(int id) const { return depends_[id]; }

  // The nodes that `roots` need, operands first, each once.
  std::vector<int> Reachable(const std::vector<int>& roots) const;

 private:
  using Key = std::tuple<ScoreOp, int, double, std::array<int, 3>>;

  int Intern(const ScoreNode& node);
  int Fold(const ScoreNode& node);  // a constant node, or -1
  // The node that stands for the operation without it, or -1.
  int Simplify(ScoreOp op, int a, int b, int c);
  int SimplifyAdd(int a, int b);
  int SimplifySub(int a, int b);
  int SimplifyMul(int a, int b);
  int SimplifyDiv(int a, int b);
  int SimplifyPow(int a, int b);
  int SimplifySelect(int condition, int a, int b);
  bool Is(int id, ScoreOp op) const { return nodes_[id].op == op; }
  int Operand(int id, int i) const { return nodes_[id].operands[i]; }

  bool simplify_;
  std::vector<ScoreNode> nodes_;
  std::vector<bool> depends_;
  std::map<Key, int> known_;
};

// One operation on numbers; booleans are 0 and 1. operands: as many as ScoreArity says.
double ApplyScoreOp(ScoreOp op, const double* operands);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SCORE_GRAPH_H_
