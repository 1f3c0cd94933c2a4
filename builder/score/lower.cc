// A search with memory: a part is turned about (Distribute) until every node has a tensor, and only
// if nothing else serves are values made tensors (Widen), and all of it is tried once more.
#include "builder/score/lower.h"

#include <cmath>
#include <map>
#include <optional>

#include "builder/score/pointwise.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

using nlohmann::json;

using MaybeRef = std::optional<Ref>;

constexpr double kNotSeen = -1e9;  // a score of which no softmax has anything left
constexpr int kMaxNodes = 256;
constexpr int kMaxAttempts = 4096;  // turning operations about may try the same part again

class Lowering {
 public:
  Lowering(const ScoreExpression& expression, const ScorePlan& plan)
      : expression_(expression),
        graph_(expression.graph),
        plan_(plan),
        only_reals_(plan.backward && !graph_.IsConstant(expression.slope)) {}

  Status Forward() {
    MaybeRef result = Lower(expression_.value);
    if (!result && Widen()) result = Lower(expression_.value);
    if (result) result = Guarded(*result, kNotSeen);
    if (!result) return Refusal("score_mod");
    forward_ = *result;
    return Status();
  }

  // After Forward, whose nodes stay what they are.
  Status Backward() {
    const Ref gradient{Ref::Kind::kGradient, 0, 0};
    MaybeRef result = Combine(ScoreOp::kMul, gradient, expression_.slope);
    if (!result && Widen()) result = Combine(ScoreOp::kMul, gradient, expression_.slope);
    if (result && result->by_value()) result = Emit("MUL", gradient, *result);
    if (result) result = Guarded(*result, 0);
    if (!result) return Refusal("the derivative of score_mod");
    backward_ = *result;
    return Status();
  }

  json ForwardJson() {
    const std::vector<bool> wanted = Needed(forward_);
    return ToJson(wanted, std::vector<bool>(nodes_.size()), forward_);
  }

  // After Forward and Backward.
  json BackwardJson() {
    const std::vector<bool> before = Needed(forward_);
    ToJson(before, std::vector<bool>(nodes_.size()), forward_);  // numbers them
    return ToJson(Needed(backward_), before, backward_);
  }

 private:
  const ScoreNode& At(int id) const { return graph_.node(id); }

  // What scores beyond the bounds become: `otherwise`.
  MaybeRef Guarded(Ref result, double otherwise) {
    MaybeRef inside;
    for (const auto& [index, bound] : {std::pair('q', plan_.queries), {'k', plan_.keys}}) {
      if (bound == 0) continue;
      const int axis = static_cast<int>(kScoreIndices.find(index));
      const MaybeRef below = Emit("CMP_LT", Ref{Ref::Kind::kIndex, axis, 0},
                                  Ref{Ref::Kind::kValue, 0, static_cast<double>(bound)});
      if (!below) return std::nullopt;
      inside = inside ? Emit("LOGICAL_AND", *inside, *below) : below;
    }
    if (!inside) return result;
    return Emit("SELECT", result, Ref{Ref::Kind::kValue, 0, otherwise}, *inside);
  }

  // What could not be lowered may be tried again, now with values made tensors.
  bool Widen() {
    if (widen_) return false;
    widen_ = true;
    reason_.clear();
    attempts_ = 0;
    std::erase_if(lowered_, [](const auto& known) { return !known.second.ref; });
    return true;
  }

  MaybeRef Widened(Ref value) {
    const int q = static_cast<int>(kScoreIndices.find('q'));
    const MaybeRef zero = Emit("MUL", Ref{Ref::Kind::kIndex, q, 0}, Ref{Ref::Kind::kValue, 0, 0});
    return zero ? Emit("ADD", *zero, value) : std::nullopt;
  }

  // Remembers the first reason, which names the smallest part.
  std::nullopt_t Refuse(int id, const std::string& why) {
    if (reason_.empty()) reason_ = fmt::format("'{}' {}", ScoreText(expression_, id), why);
    return std::nullopt;
  }

  Status Refusal(const char* what) const {
    return Unimplemented(
        fmt::format("lowering {} \"{}\" to cuDNN: {}; a variant with the expression "
                    "compiled in takes it",
                    what, expression_.text, reason_));
  }

  MaybeRef Emit(std::string mode, Ref x, Ref y = {}, Ref z = {}) {
    if (only_reals_ && (mode == "ADD" || mode == "SUB") && x.kind == Ref::Kind::kIndex &&
        y.kind == Ref::Kind::kIndex) {
      const MaybeRef real = Emit("MUL", x, Ref{Ref::Kind::kValue, 0, 1});
      return real ? Emit(std::move(mode), *real, y) : std::nullopt;
    }
    const Pointwise node{std::move(mode), x, y, z};
    const auto [found, fresh] = known_.try_emplace(node, static_cast<int>(nodes_.size()));
    if (fresh) nodes_.push_back(node);
    if (nodes_.size() > kMaxNodes) {
      if (reason_.empty()) reason_ = fmt::format("it takes over {} nodes", kMaxNodes);
      return std::nullopt;
    }
    return Ref{Ref::Kind::kNode, found->second, 0};
  }

  MaybeRef ByValue(int id) const {
    const ScoreNode& node = At(id);
    if (node.op == ScoreOp::kConst) return Ref{Ref::Kind::kValue, 0, node.number};
    if (node.op == ScoreOp::kScalar) return Ref{Ref::Kind::kScalar, node.index, 0};
    return std::nullopt;
  }

  // Whether nothing in it is a tensor of the graph.
  bool OnlyValues(int id) const {
    for (int part : graph_.Reachable({id})) {
      const ScoreOp op = At(part).op;
      if (op == ScoreOp::kScore || op == ScoreOp::kIndex || op == ScoreOp::kTensor) return false;
    }
    return true;
  }

  // A tensor of the graph, or nothing after Refuse.
  MaybeRef Lower(int id) {
    if (const auto found = lowered_.find(id); found != lowered_.end()) {
      if (reason_.empty()) reason_ = found->second.why;
      return found->second.ref;
    }
    Known known;
    if (widen_ || !OnlyValues(id)) {
      const MaybeRef value = ByValue(id);
      known.ref = value ? Widened(*value) : Make(id);
    } else {
      Refuse(id, "is made of values alone, and a node of cuDNN's needs a tensor");
    }
    if (!known.ref) known.why = reason_;
    lowered_[id] = known;
    return known.ref;
  }

  MaybeRef Make(int id) {
    const ScoreNode node = At(id);
    switch (node.op) {
      case ScoreOp::kScore:
        return Ref{Ref::Kind::kScore, 0, 0};
      case ScoreOp::kIndex:
        return Ref{Ref::Kind::kIndex, node.index, 0};
      case ScoreOp::kTensor:
        return Ref{Ref::Kind::kTensor, node.index, 0};
      case ScoreOp::kSelect: {
        const MaybeRef a = Side(node.operands[1]), b = Side(node.operands[2]);
        return a && b ? Select(id, node.operands[0], *a, *b) : std::nullopt;
      }
      default:
        break;
    }
    if (ScoreArity(node.op) == 1) {
      const MaybeRef x = Lower(node.operands[0]);
      if (!x) return std::nullopt;
      return node.op == ScoreOp::kNeg ? Negative(*x) : Emit(Mode(node.op), *x);
    }
    return Binary(id, node);
  }

  // One side of a select.
  MaybeRef Side(int id) {
    const MaybeRef value = ByValue(id);
    return value ? value : Lower(id);
  }

  MaybeRef Negative(Ref x) { return Emit("MUL", x, Ref{Ref::Kind::kValue, 0, -1}); }

  MaybeRef Select(int id, int condition, Ref a, Ref b) {
    if (a == b && !a.by_value()) return a;
    if (a.by_value() && b.by_value()) {
      if (!widen_) return Refuse(id, "selects between two values, and cuDNN needs a tensor");
      const MaybeRef tensor = Widened(a);
      return tensor ? Select(id, condition, *tensor, b) : std::nullopt;
    }
    if (!a.by_value()) {
      const MaybeRef z = Lower(condition);
      return z ? Emit("SELECT", a, b, *z) : std::nullopt;
    }
    const MaybeRef z = LowerNot(condition);
    return z ? Emit("SELECT", b, a, *z) : std::nullopt;
  }

  MaybeRef LowerNot(int id) {
    ScoreNode node = At(id);
    if (IsComparison(node.op)) {
      node.op = Opposite(node.op);
      return widen_ || !OnlyValues(id) ? Binary(id, node) : Lower(id);
    }
    const MaybeRef x = Lower(id);
    return x ? Emit("LOGICAL_NOT", *x) : std::nullopt;
  }

  MaybeRef Binary(int id, const ScoreNode& node) {
    const auto [a, b, unused] = node.operands;
    if (!OnlyValues(a)) {
      const std::string before = reason_;
      if (const MaybeRef x = Lower(a)) return Combine(node.op, *x, b);
      // The other side first, where the order does not matter.
      if (OnlyValues(b) || !Commutes(node.op)) return std::nullopt;
      const MaybeRef x = Lower(b);
      if (!x) return std::nullopt;
      const MaybeRef turned = Combine(node.op, *x, a);
      if (turned) reason_ = before;
      return turned;
    }
    const MaybeRef y = Lower(b);
    return y ? Turned(id, node.op, a, *y) : std::nullopt;
  }

  static bool Commutes(ScoreOp op) {
    return op == ScoreOp::kAdd || op == ScoreOp::kMul || op == ScoreOp::kMin ||
           op == ScoreOp::kMax || op == ScoreOp::kEq || op == ScoreOp::kNe;
  }

  // a op y, with a made of values.
  MaybeRef Turned(int id, ScoreOp op, int a, Ref y) {
    if (Commutes(op) || IsComparison(op)) return Combine(Mirrored(op), y, a);
    MaybeRef x;
    switch (op) {
      case ScoreOp::kSub:
        x = Negative(y);
        return x ? Combine(ScoreOp::kAdd, *x, a) : std::nullopt;
      case ScoreOp::kDiv:
        x = Emit("RECIPROCAL", y);
        return x ? Combine(ScoreOp::kMul, *x, a) : std::nullopt;
      case ScoreOp::kPow:
        if (At(a).op != ScoreOp::kConst || At(a).number <= 0) break;
        x = Emit("MUL", y, Ref{Ref::Kind::kValue, 0, std::log(At(a).number)});
        return x ? Emit("EXP", *x) : std::nullopt;
      default:
        break;
    }
    if (!widen_) return Refuse(id, "has a value where cuDNN takes a tensor only");
    x = Lower(a);
    return x ? Emit(Mode(op), *x, y) : std::nullopt;
  }

  // x op e; of a product with 0 or 1 what it is, which may be by value.
  MaybeRef Combine(ScoreOp op, Ref x, int e) {
    if (++attempts_ > kMaxAttempts) return Refuse(e, "is too entangled");
    if (const MaybeRef value = ByValue(e)) {
      if (op == ScoreOp::kMul && graph_.IsConstant(e, 0)) return value;
      if ((op == ScoreOp::kMul || op == ScoreOp::kDiv) && graph_.IsConstant(e, 1)) return x;
      return Emit(Mode(op), x, *value);
    }
    const std::string before = reason_;
    if (const MaybeRef y = Lower(e)) return Emit(Mode(op), x, *y);
    const MaybeRef made = Distribute(op, x, e);
    if (made) reason_ = before;
    return made;
  }

  // x op e, where e alone cannot be lowered, but its parts may be combined with x.
  MaybeRef Distribute(ScoreOp op, Ref x, int e) {
    if (IsComparison(op)) return std::nullopt;  // cuDNN selects between numbers only
    const ScoreNode node = At(e);
    const auto [a, b, c] = node.operands;
    if (node.op == ScoreOp::kSelect) {
      if (OnlyValues(a)) return std::nullopt;
      const MaybeRef yes = Combine(op, x, b), no = Combine(op, x, c);
      return yes && no ? Select(e, a, *yes, *no) : std::nullopt;
    }
    const bool sum = op == ScoreOp::kAdd || op == ScoreOp::kSub;
    const bool product = op == ScoreOp::kMul || op == ScoreOp::kDiv;
    if (node.op == ScoreOp::kNeg && sum) {
      return Combine(op == ScoreOp::kAdd ? ScoreOp::kSub : ScoreOp::kAdd, x, a);
    }
    if (node.op == ScoreOp::kNeg && product) {
      const MaybeRef positive = Combine(op, x, a);
      return positive && !positive->by_value() ? Negative(*positive) : positive;
    }
    const bool sums = node.op == ScoreOp::kAdd || node.op == ScoreOp::kSub;
    const bool products = node.op == ScoreOp::kMul || node.op == ScoreOp::kDiv;
    if ((sum && sums) || (product && products)) return Chain(op, x, node);
    if (op != ScoreOp::kMul || !sums) return std::nullopt;
    const MaybeRef left = Combine(op, x, a);  // x (a + b) = x a + x b
    const MaybeRef right = Combine(op, x, b);
    if (!left || !right || left->by_value()) return std::nullopt;
    return Emit(Mode(node.op), *left, *right);
  }

  // x + (a - b) = (x + a) - b, x / (a * b) = (x / a) / b, and so on.
  MaybeRef Chain(ScoreOp op, Ref x, const ScoreNode& node) {
    const bool inverse = op == ScoreOp::kSub || op == ScoreOp::kDiv;
    const bool second = node.op == ScoreOp::kSub || node.op == ScoreOp::kDiv;
    const bool sum = op == ScoreOp::kAdd || op == ScoreOp::kSub;
    const ScoreOp plain = sum ? ScoreOp::kAdd : ScoreOp::kMul;
    const ScoreOp other = sum ? ScoreOp::kSub : ScoreOp::kDiv;
    const MaybeRef first = Combine(op, x, node.operands[0]);
    if (!first || first->by_value()) return first;
    return Combine(inverse != second ? other : plain, *first, node.operands[1]);
  }

  std::vector<bool> Needed(Ref result) const {
    std::vector<bool> needed(nodes_.size());
    const auto mark = [&needed](const Ref& ref) {
      if (ref.kind == Ref::Kind::kNode) needed[ref.index] = true;
    };
    mark(result);
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (!needed[i]) continue;
      for (const Ref& ref : {nodes_[i].x, nodes_[i].y, nodes_[i].z}) mark(ref);
    }
    return needed;
  }

  // The nodes that are in `wanted` and not in `before`, numbered on.
  json ToJson(const std::vector<bool>& wanted, const std::vector<bool>& before, Ref result) {
    json nodes = json::array();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!wanted[i] || before[i]) continue;
      const Pointwise& node = nodes_[i];
      const int id = static_cast<int>(ids_.size()) + 1;
      ids_[static_cast<int>(i)] = id;
      json row = {{"id", id}, {"mode", node.mode}, {"x", ToJson(node.x)}};
      if (node.y.kind != Ref::Kind::kNone) row["y"] = ToJson(node.y);
      if (node.z.kind != Ref::Kind::kNone) row["z"] = ToJson(node.z);
      nodes.push_back(std::move(row));
    }
    return {{"nodes", std::move(nodes)}, {"result", ToJson(result)}};
  }

  json ToJson(const Ref& ref) const {
    switch (ref.kind) {
      case Ref::Kind::kNode:
        return {{"node", ids_.at(ref.index)}};
      case Ref::Kind::kScore:
        return {{"score", true}};
      case Ref::Kind::kGradient:
        return {{"gradient", true}};
      case Ref::Kind::kIndex:
        return {{"index", std::string(1, kScoreIndices[ref.index])}};
      case Ref::Kind::kTensor:
        return {{"tensor", expression_.tensors[ref.index].name}};
      case Ref::Kind::kScalar:
        return {{"scalar", expression_.scalars[ref.index]}};
      default:
        return {{"value", ref.number}};
    }
  }

  const ScoreExpression& expression_;
  const ScoreGraph& graph_;
  const ScorePlan plan_;
  const bool only_reals_;         // no sum of indices, which is an integer
  std::vector<Pointwise> nodes_;  // operands first
  std::map<Pointwise, int> known_;
  struct Known {
    MaybeRef ref;
    std::string why;  // there is none
  };
  std::map<int, Known> lowered_;
  std::map<int, int> ids_;  // by place in nodes_
  std::string reason_;
  int attempts_ = 0;
  bool widen_ = false;
  Ref forward_, backward_;
};

}  // namespace

Result<json> LowerScoreMod(const ScoreExpression& expression, const ScorePlan& plan) {
  Lowering lowering(expression, plan);
  KB_RETURN_IF_ERROR(lowering.Forward());
  return lowering.ForwardJson();
}

Result<json> LowerScoreModBackward(const ScoreExpression& expression, const ScorePlan& plan) {
  Lowering lowering(expression, plan);
  KB_RETURN_IF_ERROR(lowering.Forward());
  KB_RETURN_IF_ERROR(lowering.Backward());
  return lowering.BackwardJson();
}

}  // namespace kbundle::builder
