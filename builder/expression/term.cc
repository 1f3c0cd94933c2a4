// Postfix code to a tree, simplified from the leaves up: every step keeps value and failure.
#include "builder/expression/term.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "kbundle/arithmetic.h"
#include "kbundle/status.h"

namespace kbundle::builder {
namespace {

// Lets that use lets twice grow without bound.
constexpr size_t kMaxTerms = 2000;
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

Term Constant(int64_t value) { return {Opcode::kConst, value, {}}; }

// K > 8 for 8 < K: constants stand on the right.
void TurnAbout(Term* term) {
  if (term->operands.size() != 2 || !term->operands[0].IsConstant()) return;
  switch (term->opcode) {
    case Opcode::kLt:
      term->opcode = Opcode::kGt;
      break;
    case Opcode::kLe:
      term->opcode = Opcode::kGe;
      break;
    case Opcode::kGt:
      term->opcode = Opcode::kLt;
      break;
    case Opcode::kGe:
      term->opcode = Opcode::kLe;
      break;
    case Opcode::kEq:
    case Opcode::kNe:
    case Opcode::kAdd:
    case Opcode::kMul:
    case Opcode::kMin:
    case Opcode::kMax:
      break;
    default:
      return;
  }
  std::swap(term->operands[0], term->operands[1]);
}

Term Fold(Term term) {
  const std::vector<Term>& operands = term.operands;
  if (operands[0].IsConstant()) {
    const bool holds = operands[0].operand != 0;
    if (term.opcode == Opcode::kSelect) return holds ? operands[1] : operands[2];
    if (term.opcode == Opcode::kAnd) return holds ? operands[1] : operands[0];
    if (term.opcode == Opcode::kOr) return holds ? operands[0] : operands[1];
  }
  if (std::all_of(operands.begin(), operands.end(), [](const Term& o) { return o.IsConstant(); })) {
    std::vector<Slot> values;
    for (const Term& operand : operands) values.push_back({operand.operand});
    const Slot value = Apply(term.opcode, values.data());
    if (value.ok()) return Constant(value.value);
  }
  TurnAbout(&term);
  return term;
}

class Builder {
 public:
  Builder(const Template& variant, const Template::Point& point)
      : variant_(variant), point_(point) {}

  std::optional<Term> Build(const std::vector<Instruction>& code) {
    std::vector<Term> stack;
    for (const Instruction& one : code) {
      if (++terms_ > kMaxTerms) return std::nullopt;
      const auto arity = static_cast<size_t>(Arity(one.opcode));
      if (arity == 0) {
        std::optional<Term> leaf = Leaf(one);
        if (!leaf) return std::nullopt;
        stack.push_back(std::move(*leaf));
        continue;
      }
      KB_CHECK(stack.size() >= arity);
      Term term{one.opcode, 0, {}};
      const auto first = stack.end() - static_cast<std::ptrdiff_t>(arity);
      term.operands.assign(std::make_move_iterator(first), std::make_move_iterator(stack.end()));
      stack.erase(first, stack.end());
      stack.push_back(Fold(std::move(term)));
    }
    KB_CHECK(stack.size() == 1);
    return std::move(stack[0]);
  }

 private:
  std::optional<Term> Leaf(const Instruction& one) {
    const auto index = static_cast<size_t>(one.operand);
    switch (one.opcode) {
      case Opcode::kTunable:
        return Constant(point_.tunables[index]);
      case Opcode::kSizeOfType:
        return Constant(SizeOf(point_.types[index]));
      case Opcode::kType:
        return Constant(static_cast<int64_t>(point_.types[index]));
      case Opcode::kLet:
        return Build(variant_.lets[index].program.code);
      default:
        return Term{one.opcode, one.operand, {}};
    }
  }

  const Template& variant_;
  const Template::Point& point_;
  size_t terms_ = 0;
};

// What a comparison with a constant says of its left side.
struct Bounds {
  int64_t low = kLowest, high = kHighest;
};

std::optional<Bounds> BoundsOf(const Term& term) {
  if (term.operands.size() != 2 || !term.operands[1].IsConstant()) return std::nullopt;
  const int64_t number = term.operands[1].operand;
  switch (term.opcode) {
    case Opcode::kEq:
      return Bounds{number, number};
    case Opcode::kLe:
      return Bounds{kLowest, number};
    case Opcode::kGe:
      return Bounds{number, kHighest};
    case Opcode::kLt:
      if (number == kLowest) return std::nullopt;
      return Bounds{kLowest, number - 1};
    case Opcode::kGt:
      if (number == kHighest) return std::nullopt;
      return Bounds{number + 1, kHighest};
    default:
      return std::nullopt;
  }
}

// "X % M == 0": M, where it is above 0.
std::optional<int64_t> MultipleOf(const Term& term) {
  if (term.opcode != Opcode::kEq || !term.operands[1].IsConstant()) return std::nullopt;
  if (term.operands[1].operand != 0 || term.operands[0].opcode != Opcode::kMod) return std::nullopt;
  const Term& modulus = term.operands[0].operands[1];
  if (!modulus.IsConstant() || modulus.operand <= 0) return std::nullopt;
  return modulus.operand;
}

bool FollowsFromBounds(const std::vector<Term>& given, const Term& wanted) {
  const bool differs = wanted.opcode == Opcode::kNe && wanted.operands[1].IsConstant();
  const std::optional<Bounds> bounds = BoundsOf(wanted);
  if (!bounds && !differs) return false;
  const std::string side = wanted.operands[0].Text();
  Bounds known;
  bool any = false;  // and so the side can be computed
  for (const Term& one : given) {
    const std::optional<Bounds> more = BoundsOf(one);
    if (!more || one.operands[0].Text() != side) continue;
    known = {std::max(known.low, more->low), std::min(known.high, more->high)};
    any = true;
  }
  if (!any) return false;
  if (bounds) return bounds->low <= known.low && known.high <= bounds->high;
  const int64_t number = wanted.operands[1].operand;
  return number < known.low || number > known.high;
}

bool FollowsFromMultiples(const std::vector<Term>& given, const Term& wanted) {
  const std::optional<int64_t> modulus = MultipleOf(wanted);
  if (!modulus) return false;
  const std::string number = wanted.operands[0].operands[0].Text();
  return std::any_of(given.begin(), given.end(), [&](const Term& one) {
    const std::optional<int64_t> more = MultipleOf(one);
    return more && *more % *modulus == 0 && one.operands[0].operands[0].Text() == number;
  });
}

// What `given` says has one value, by its text: D of D == 128.
std::map<std::string, int64_t> ValuesOf(const std::vector<Term>& given) {
  std::map<std::string, int64_t> values;
  for (const Term& one : given) {
    if (one.opcode != Opcode::kEq || !one.operands[1].IsConstant()) continue;
    values.emplace(one.operands[0].Text(), one.operands[1].operand);
  }
  return values;
}

// With those values in their places.
Term Known(Term term, const std::map<std::string, int64_t>& values) {
  const auto value = values.find(term.Text());
  if (value != values.end()) return Constant(value->second);
  if (term.operands.empty()) return term;
  for (Term& operand : term.operands) operand = Known(std::move(operand), values);
  return Fold(std::move(term));
}

bool FollowsAsItStands(const std::vector<Term>& given, const Term& wanted) {
  if (wanted.IsConstant()) return wanted.operand != 0;
  if (wanted.opcode == Opcode::kAnd) {
    return FollowsAsItStands(given, wanted.operands[0]) &&
           FollowsAsItStands(given, wanted.operands[1]);
  }
  const std::string text = wanted.Text();
  if (std::any_of(given.begin(), given.end(), [&](const Term& one) { return one.Text() == text; }))
    return true;
  // The right side of || is looked at only where the left has a value, which nobody promises.
  if (wanted.opcode == Opcode::kOr) return FollowsAsItStands(given, wanted.operands[0]);
  return FollowsFromBounds(given, wanted) || FollowsFromMultiples(given, wanted);
}

}  // namespace

std::string Term::Text() const {
  std::string text = std::to_string(static_cast<int>(opcode));
  if (operands.empty()) return text + ":" + std::to_string(operand);
  for (const Term& one : operands) text += (&one == operands.data() ? "(" : " ") + one.Text();
  return text + ")";
}

std::optional<Term> TermOf(const std::vector<Instruction>& code, const Template& variant,
                           const Template::Point& point) {
  return Builder(variant, point).Build(code);
}

void AddParts(Term condition, std::vector<Term>* parts) {
  if (condition.opcode != Opcode::kAnd) return parts->push_back(std::move(condition));
  for (Term& part : condition.operands) AddParts(std::move(part), parts);
}

bool Implies(const std::vector<Term>& given, const Term& wanted) {
  return FollowsAsItStands(given, wanted) ||
         FollowsAsItStands(given, Known(wanted, ValuesOf(given)));
}

}  // namespace kbundle::builder
