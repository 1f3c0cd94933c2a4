#include "expression_compile.h"

#include <algorithm>

#include "expression_compiler.h"
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

bool ExpressionCompiler::Allowed(const Expression& e, const Entity& entity) {
  bool allowed = true;
  switch (entity.kind) {
    case Entity::Kind::kSymbol:
    case Entity::Kind::kAttribute:
    case Entity::Kind::kOperand:
      allowed = place_.problem;
      break;
    case Entity::Kind::kResult:
      allowed = place_.results;
      break;
    case Entity::Kind::kTunable:
      allowed = place_.tunables;
      break;
    case Entity::Kind::kLet:
      allowed = place_.lets;
      break;
    case Entity::Kind::kTypeParam:
      break;
    case Entity::Kind::kRegion:
      allowed = false;
      break;
  }
  if (!allowed) {
    Fail(e,
         fmt::format("'{}' is {}, which {} cannot use", e.name, Describe(entity.kind), place_.what),
         fmt::format("{} may use {}", place_.what, AllowedKinds()));
  }
  return allowed;
}

std::string ExpressionCompiler::AllowedKinds() const {
  std::vector<std::string> kinds;
  if (place_.problem) kinds = {"dim symbols", "attributes"};
  kinds.push_back("type parameters");
  if (place_.tunables) kinds.push_back("tunables");
  if (place_.lets) kinds.push_back("lets");
  if (place_.sm_count) kinds.push_back("sm_count");
  return fmt::format("{}", fmt::join(kinds, ", "));
}

std::vector<std::string> ExpressionCompiler::Known() const {
  std::vector<std::string> out;
  auto add = [&](bool wanted, Entity::Kind kind) {
    if (!wanted) return;
    for (std::string& name : in_.names->OfKinds({kind})) out.push_back(std::move(name));
  };
  add(place_.problem, Entity::Kind::kSymbol);
  add(place_.problem, Entity::Kind::kAttribute);
  add(true, Entity::Kind::kTypeParam);
  add(place_.tunables, Entity::Kind::kTunable);
  add(place_.lets, Entity::Kind::kLet);
  if (place_.sm_count) out.push_back("sm_count");
  return out;
}

void ExpressionCompiler::FailUnknown(const Expression& e, std::string_view what,
                                     const std::vector<std::string>& known) {
  std::string nearest = NearestName(e.name, known);
  std::string note = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  note +=
      known.empty() ? "none is known here" : fmt::format("known here: {}", fmt::join(known, ", "));
  bool first = ok_;
  Fail(e, fmt::format("unknown {} '{}' in \"{}\"", what, e.name, in_.text), std::move(note));
  if (first) error_->unknown_name = true;
}

ValueType ExpressionCompiler::VisitName(const Expression& e) {
  if (e.name == "sm_count") {
    if (!place_.sm_count) {
      Fail(e, fmt::format("{} cannot use sm_count; only a grid may", place_.what),
           "results and workspace must not depend on the device that runs the plan");
    }
    Emit(Opcode::kSmCount);
    return kInt;
  }
  const Entity* entity = in_.names->Find(e.name);
  if (entity == nullptr) {
    if (std::optional<DType> dtype = ParseDType(e.name)) {
      Emit(Opcode::kConst, static_cast<int64_t>(*dtype));
      return kDType;
    }
    FailUnknown(e, "symbol", Known());
    return kInt;
  }
  if (!Allowed(e, *entity)) return kInt;
  switch (entity->kind) {
    case Entity::Kind::kSymbol:
      Emit(Opcode::kDim, entity->index);
      return kInt;
    case Entity::Kind::kTypeParam:
      Emit(Opcode::kType, entity->index);
      return kDType;
    case Entity::Kind::kTunable:
      Emit(Opcode::kTunable, entity->index);
      return kInt;
    case Entity::Kind::kAttribute:
      return VisitAttribute(e, entity->index);
    case Entity::Kind::kLet:
      if (place_.inline_lets) {
        code_.insert(code_.end(), entity->inlined.begin(), entity->inlined.end());
      } else {
        Emit(Opcode::kLet, entity->index);
      }
      return entity->type;
    default:
      Fail(
          e, fmt::format("'{}' is {}, not a number", e.name, Describe(entity->kind)),
          fmt::format("use a symbol of its shape, dim({0}, 0), rank({0}) or present({0})", e.name));
      return kInt;
  }
}

ValueType ExpressionCompiler::VisitAttribute(const Expression& e, int index) {
  const Attribute& attribute = in_.op->attributes[index];
  Emit(Opcode::kAttribute, index);
  switch (attribute.type) {
    case AttributeType::kBool:
      return kBool;
    case AttributeType::kInt:
      return kInt;
    case AttributeType::kDType:
      return kDType;
    case AttributeType::kEnum:
      return {ValueType::Kind::kEnum, index};
    case AttributeType::kFloat:
      Fail(e, fmt::format("'{}' is a float attribute; expressions are integer", e.name),
           fmt::format("a kernel gets it as an argument: f32({})", e.name));
      return kInt;
    default:
      Fail(e, fmt::format("'{}' is an array attribute, not a number", e.name),
           fmt::format("use len({0}) or {0}[0]", e.name));
      return kInt;
  }
}

ValueType ExpressionCompiler::VisitIndex(const Expression& e) {
  int attribute = ArrayAttribute(e);
  if (!ok_) return kInt;
  if (in_.op->attributes[attribute].type != AttributeType::kIntArray) {
    Fail(e, fmt::format("'{}' is a float[] attribute; expressions are integer", e.name));
  }
  int64_t element = Literal(e.operands[0], in_.op->attributes[attribute].max_len, "the index");
  Emit(Opcode::kElement, attribute | element << 8);
  return kInt;
}

int ExpressionCompiler::ArrayAttribute(const Expression& e) {
  const Entity* entity = in_.names->Find(e.name);
  if (entity == nullptr) {
    FailUnknown(e, "array attribute", in_.names->OfKinds({Entity::Kind::kAttribute}));
    return 0;
  }
  if (entity->kind != Entity::Kind::kAttribute || in_.op->attributes[entity->index].max_len == 0) {
    Fail(e, fmt::format("'{}' is not an array attribute", e.name));
    return 0;
  }
  Allowed(e, *entity);
  return entity->index;
}

int64_t ExpressionCompiler::Literal(const Expression& e, int64_t limit, const std::string& what) {
  if (e.kind != Kind::kInteger) {
    Fail(e, fmt::format("{} must be a literal number", what));
  } else if (e.value >= limit) {
    Fail(e, fmt::format("{} is {}, allowed are 0 to {}", what, e.value, limit - 1));
  }
  return ok_ ? e.value : 0;
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

Place OperandShapePlace() { return {.what = "the shape of an operand"}; }
Place ResultShapePlace() { return {.what = "the interface of an op"}; }
Place RequirePlace() { return {.what = "`require`", .stride = true}; }
Place KeepPlace() { return {.what = "`keep`", .problem = false, .tunables = true}; }
Place WhenPlace() {
  return {.what = "`when`",
          .tunables = true,
          .lets = true,
          .inline_lets = true,
          .results = true,
          .stride = true,
          .align = true};
}
Place LetPlace() {
  return {.what = "a let",
          .tunables = true,
          .lets = true,
          .results = true,
          .stride = true,
          .align = true};
}
Place StepPlace(std::string what) {
  Place place = LetPlace();
  place.what = std::move(what);
  return place;
}
Place GridPlace() {
  Place place = StepPlace("a grid");
  place.sm_count = true;
  return place;
}

}  // namespace kbundle::builder
