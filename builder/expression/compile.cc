// One walk over the tree checks types and writes postfix code, and folds constants as it emits:
// where an operator's operands are the last constants written, its value takes their place, by the
// same Apply that a loader runs. What would fail (division by zero) is left to fail where it is
// run, and length and depth are checked against what a loader accepts.
#include "builder/expression/compile.h"

#include <algorithm>

#include "builder/expression/compiler.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/arithmetic.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Expression::Kind;

const char* Symbol(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAdd:
      return "+";
    case Opcode::kSub:
      return "-";
    case Opcode::kNeg:
      return "-";
    case Opcode::kMul:
      return "*";
    case Opcode::kDiv:
      return "/";
    case Opcode::kMod:
      return "%";
    case Opcode::kEq:
      return "==";
    case Opcode::kNe:
      return "!=";
    case Opcode::kLt:
      return "<";
    case Opcode::kLe:
      return "<=";
    case Opcode::kGt:
      return ">";
    case Opcode::kGe:
      return ">=";
    case Opcode::kAnd:
      return "&&";
    case Opcode::kOr:
      return "||";
    case Opcode::kNot:
      return "!";
    default:
      return "?:";
  }
}

}  // namespace

ValueType ExpressionCompiler::Visit(const Expression& e) {
  switch (e.kind) {
    case Kind::kInteger:
      Emit(Opcode::kConst, e.value);
      return kInt;
    case Kind::kBool:
      Emit(Opcode::kConst, e.value);
      return kBool;
    case Kind::kText:
      Fail(e, "a text can only be compared with an enum attribute", "as in mode == 'causal'");
      return kInt;
    case Kind::kName:
      return VisitName(e);
    case Kind::kCall:
      return VisitCall(e);
    case Kind::kIndex:
      return VisitIndex(e);
    case Kind::kOperator:
      return VisitOperator(e);
  }
  return kInt;
}

void ExpressionCompiler::Fail(const Expression& at, std::string message, std::string note) {
  if (!ok_) return;
  ok_ = false;
  *error_ = {at.begin, at.end - at.begin, std::move(message), std::move(note), false};
}

void ExpressionCompiler::Emit(Opcode opcode, int64_t operand) {
  size_t arity = Arity(opcode);
  Slot slots[3];
  bool constant = arity > 0 && code_.size() >= arity;
  for (size_t i = 0; constant && i < arity; ++i) {
    const Instruction& from = code_[code_.size() - arity + i];
    constant = from.opcode == Opcode::kConst;
    slots[i].value = from.operand;
  }
  Slot folded = constant ? Apply(opcode, slots) : Slot{};
  if (!constant || !folded.ok()) return code_.push_back({opcode, operand});
  code_.resize(code_.size() - arity);
  code_.push_back({Opcode::kConst, folded.value});
}

void ExpressionCompiler::Want(const Expression& e, ValueType found, ValueType wanted,
                              const std::string& why) {
  if (!ok_ || found == wanted) return;
  Fail(e,
       fmt::format("{} wants {}, but '{}' is {}", why, Describe(wanted, *in_.op), TextOf(e),
                   Describe(found, *in_.op)),
       found == kBool && wanted == kInt ? "turn a bool into a number with `c ? 1 : 0`" : "");
}

std::string_view ExpressionCompiler::TextOf(const Expression& e) const {
  return in_.text.substr(e.begin, e.end - e.begin);
}

ValueType ExpressionCompiler::VisitOperator(const Expression& e) {
  Opcode op = e.opcode;
  if (op == Opcode::kEq || op == Opcode::kNe) return VisitEquality(e);
  std::string why = fmt::format("'{}'", Symbol(op));
  if (op == Opcode::kSelect) {
    Want(e.operands[0], Visit(e.operands[0]), kBool, "the condition of '?'");
    ValueType type = ok_ ? Visit(e.operands[1]) : kInt;
    ValueType other = ok_ ? Visit(e.operands[2]) : kInt;
    Want(e.operands[2], other, type, "the second side of ':', like the first,");
    Emit(op);
    return type;
  }
  bool logical = op == Opcode::kAnd || op == Opcode::kOr || op == Opcode::kNot;
  for (const Expression& operand : e.operands) {
    if (ok_) Want(operand, Visit(operand), logical ? kBool : kInt, why);
  }
  Emit(op);
  bool comparison = op >= Opcode::kLt && op <= Opcode::kGe;
  return logical || comparison ? kBool : kInt;
}

ValueType ExpressionCompiler::VisitEquality(const Expression& e) {
  const Expression* left = &e.operands[0];
  const Expression* right = &e.operands[1];
  if (left->kind == Kind::kText) std::swap(left, right);
  ValueType type = Visit(*left);
  if (!ok_) return kBool;
  if (right->kind == Kind::kText) {
    VisitChoice(*right, *left, type);
  } else {
    ValueType other = Visit(*right);
    if (ok_ && other != type) {
      Fail(e,
           fmt::format("'{}' compares {} with {}", Symbol(e.opcode), Describe(type, *in_.op),
                       Describe(other, *in_.op)),
           "both sides must have one type");
    }
  }
  Emit(e.opcode);
  return kBool;
}

void ExpressionCompiler::VisitChoice(const Expression& text, const Expression& other,
                                     ValueType type) {
  if (type.kind != ValueType::Kind::kEnum) {
    return Fail(text, fmt::format("'{}' is {}; only an enum attribute is compared with a text",
                                  TextOf(other), Describe(type, *in_.op)));
  }
  const Attribute& attribute = in_.op->attributes[type.attribute];
  auto found = std::find(attribute.choices.begin(), attribute.choices.end(), text.name);
  if (found == attribute.choices.end()) {
    std::string nearest = NearestName(text.name, attribute.choices);
    return Fail(text, fmt::format("enum '{}' has no choice '{}'", attribute.name, text.name),
                fmt::format("{}it has: {}",
                            nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                            fmt::join(attribute.choices, ", ")));
  }
  Emit(Opcode::kConst, found - attribute.choices.begin());
}

std::string Describe(const ValueType& type, const Op& op) {
  switch (type.kind) {
    case ValueType::Kind::kInt:
      return "int";
    case ValueType::Kind::kBool:
      return "bool";
    case ValueType::Kind::kDType:
      return "dtype";
    case ValueType::Kind::kEnum:
      return "enum " + op.attributes[type.attribute].name;
  }
  return "nothing";
}

int TensorNumber(const Op& op, const Entity& entity) {
  return entity.index +
         (entity.kind == Entity::Kind::kResult ? static_cast<int>(op.operands.size()) : 0);
}

const Tensor& TensorOf(const Op& op, int tensor_number) {
  int operands = static_cast<int>(op.operands.size());
  return tensor_number < operands ? op.operands[tensor_number]
                                  : op.results[tensor_number - operands];
}

int StackDepth(const std::vector<Instruction>& code) {
  int depth = 0, deepest = 0;
  for (const Instruction& instruction : code) {
    depth += 1 - Arity(instruction.opcode);
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

std::vector<Instruction> ConstantCode(int64_t value) { return {{Opcode::kConst, value}}; }

std::vector<Instruction> CombineCode(Opcode opcode, std::vector<Instruction> left,
                                     const std::vector<Instruction>& right) {
  left.insert(left.end(), right.begin(), right.end());
  left.push_back({opcode, 0});
  return left;
}

std::optional<Compiled> CompileExpression(const Expression& expression, const CompileInput& input,
                                          const Place& place, ExpressionError* error) {
  ExpressionCompiler compiler(input, place, error);
  Compiled out;
  out.type = compiler.Visit(expression);
  if (!compiler.ok()) return std::nullopt;
  out.program.code = std::move(compiler.code());
  out.program.text = input.text.substr(expression.begin, expression.end - expression.begin);
  int length = expression.end - expression.begin;
  if (out.program.code.size() > kMaxProgramLength) {
    *error = {expression.begin, length,
              fmt::format("the program has {} instructions, allowed are {}",
                          out.program.code.size(), kMaxProgramLength),
              "name a part of it with `let`", false};
    return std::nullopt;
  }
  if (int depth = StackDepth(out.program.code); depth > static_cast<int>(kMaxStackDepth)) {
    *error = {
        expression.begin, length,
        fmt::format("the program needs {} stack slots, allowed are {}", depth, kMaxStackDepth),
        "put the deeper side of an operator first, or name it with `let`", false};
    return std::nullopt;
  }
  return out;
}

}  // namespace kbundle::builder
