// Most functions are one instruction over integers, and stand in a table. The others speak of a
// tensor or an attribute by its name, which is no value: their argument is looked up here, once,
// and becomes a number within the instruction.
#include <algorithm>

#include "builder/expression/compiler.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {
namespace {

using Kind = Expression::Kind;

// Functions of integers that are one instruction.
struct Arithmetic {
  const char* name;
  size_t arguments;
  Opcode opcode;
};
constexpr Arithmetic kArithmetic[] = {{"ceil_div", 2, Opcode::kCeilDiv},
                                      {"next_pow2", 1, Opcode::kNextPow2},
                                      {"ceil_log2", 1, Opcode::kCeilLog2},
                                      {"abs", 1, Opcode::kAbs}};

}  // namespace

ValueType ExpressionCompiler::VisitCall(const Expression& e) {
  if (e.name == "min") return FoldCall(e, Opcode::kMin);
  if (e.name == "max") return FoldCall(e, Opcode::kMax);
  if (e.name == "align") return AlignCall(e);
  if (e.name == "sizeof") return SizeOfCall(e);
  if (e.name == "rank") return TensorCall(e, Opcode::kRank, false);
  if (e.name == "dim") return TensorCall(e, Opcode::kTensorDim, true);
  if (e.name == "stride") return TensorCall(e, Opcode::kStride, true);
  if (e.name == "present") {
    TensorCall(e, Opcode::kPresent, false);
    return kBool;
  }
  if (e.name == "len") {
    if (!WantArguments(e, 1, 1)) return kInt;
    Emit(Opcode::kLength, ArrayAttribute(e.operands[0]));
    return kInt;
  }
  if (e.name == "choice") return ChoiceCall(e);
  if (e.name == "positive") return PositiveCall(e);
  for (const Arithmetic& function : kArithmetic) {
    if (e.name != function.name) continue;
    if (!WantArguments(e, function.arguments, function.arguments)) return kInt;
    for (const Expression& a : e.operands) {
      if (ok_) Want(a, Visit(a), kInt, e.name);
    }
    Emit(function.opcode);
    return kInt;
  }
  Expression name = e;
  name.end = e.begin + static_cast<int>(e.name.size());
  FailUnknown(name, "function",
              {"min", "max", "ceil_div", "next_pow2", "ceil_log2", "abs", "sizeof", "present",
               "align", "rank", "dim", "stride", "len", "choice", "positive"});
  return kInt;
}

bool ExpressionCompiler::WantArguments(const Expression& e, size_t least, size_t most) {
  size_t found = e.operands.size();
  if (found >= least && found <= most) return true;
  std::string wanted = least == most ? std::to_string(least) : fmt::format("{} or more", least);
  Fail(e, fmt::format("{} takes {} argument{}, found {}", e.name, wanted, wanted == "1" ? "" : "s",
                      found));
  return false;
}

ValueType ExpressionCompiler::FoldCall(const Expression& e, Opcode opcode) {
  if (!WantArguments(e, 2, kMaxProgramLength)) return kInt;
  for (size_t i = 0; ok_ && i < e.operands.size(); ++i) {
    Want(e.operands[i], Visit(e.operands[i]), kInt, e.name);
    if (i > 0) Emit(opcode);
  }
  return kInt;
}

ValueType ExpressionCompiler::SizeOfCall(const Expression& e) {
  if (!WantArguments(e, 1, 1)) return kInt;
  const Expression& a = e.operands[0];
  const Entity* entity = a.kind == Kind::kName ? in_.names->Find(a.name) : nullptr;
  if (entity != nullptr && entity->kind == Entity::Kind::kTypeParam) {
    Emit(Opcode::kSizeOfType, entity->index);
  } else if (std::optional<DType> dtype = ParseDType(a.name); a.kind == Kind::kName && dtype) {
    Emit(Opcode::kConst, SizeOf(*dtype));
  } else {
    Fail(a, fmt::format("sizeof wants a type parameter or a dtype, but found '{}'", TextOf(a)),
         "as in sizeof(T) or sizeof(f32)");
  }
  return kInt;
}

// An enum as the number of its choice, which Emit has left on the stack.
ValueType ExpressionCompiler::ChoiceCall(const Expression& e) {
  if (!WantArguments(e, 1, 1)) return kInt;
  const Expression& a = e.operands[0];
  const ValueType type = Visit(a);
  if (ok_ && (a.kind != Kind::kName || type.kind != ValueType::Kind::kEnum)) {
    Fail(a, fmt::format("choice wants an enum attribute, but '{}' is {}", TextOf(a),
                        Describe(type, *in_.op)));
  }
  return kInt;
}

// Of a float attribute, as kernels get it: the bits of an f32 above 0 lie between those of 0 and of
// NaN, as numbers.
ValueType ExpressionCompiler::PositiveCall(const Expression& e) {
  if (!WantArguments(e, 1, 1)) return kBool;
  const Expression& a = e.operands[0];
  const Entity* entity = a.kind == Kind::kName ? in_.names->Find(a.name) : nullptr;
  if (entity == nullptr || entity->kind != Entity::Kind::kAttribute ||
      in_.op->attributes[entity->index].type != AttributeType::kFloat) {
    Fail(a, fmt::format("positive wants a float attribute, but found '{}'", TextOf(a)),
         "of an integer, compare: n > 0");
    return kBool;
  }
  constexpr int64_t kInfinity = 0x7f800000;
  Emit(Opcode::kFloatBits, entity->index);
  Emit(Opcode::kConst, 0);
  Emit(Opcode::kGt);
  Emit(Opcode::kFloatBits, entity->index);
  Emit(Opcode::kConst, kInfinity);
  Emit(Opcode::kLe);
  Emit(Opcode::kAnd);
  return kBool;
}

ValueType ExpressionCompiler::AlignCall(const Expression& e) {
  if (!place_.align) {
    Fail(
        e, fmt::format("{} cannot use align", place_.what),
        "alignment belongs to a launch, not to a problem; put the condition in a variant's `when`");
  }
  if (!WantArguments(e, 1, kMaxOperands)) return kInt;
  for (size_t i = 0; ok_ && i < e.operands.size(); ++i) {
    Emit(Opcode::kAlign, TensorArgument(e.operands[i]));
    if (i > 0) Emit(Opcode::kMin);
  }
  return kInt;
}

int ExpressionCompiler::TensorArgument(const Expression& e) {
  const Entity* entity = e.kind == Kind::kName ? in_.names->Find(e.name) : nullptr;
  bool tensor = entity != nullptr &&
                (entity->kind == Entity::Kind::kOperand || entity->kind == Entity::Kind::kResult);
  if (tensor) {
    Allowed(e, *entity);
    return TensorNumber(*in_.op, *entity);
  }
  auto kinds = {Entity::Kind::kOperand, Entity::Kind::kResult};
  if (e.kind == Kind::kName && entity == nullptr) {
    FailUnknown(e, "operand", in_.names->OfKinds(kinds));
  } else {
    Fail(e, fmt::format("expected an operand or result, found '{}'", TextOf(e)),
         fmt::format("there are: {}", fmt::join(in_.names->OfKinds(kinds), ", ")));
  }
  return 0;
}

ValueType ExpressionCompiler::TensorCall(const Expression& e, Opcode opcode, bool axis) {
  if (opcode == Opcode::kStride && !place_.stride) {
    Fail(e, fmt::format("{} cannot use stride", place_.what));
  }
  if (!WantArguments(e, axis ? 2 : 1, axis ? 2 : 1)) return kInt;
  int64_t tensor = TensorArgument(e.operands[0]);
  if (!ok_) return kInt;
  if (axis) {
    const std::vector<Dim>& dims = TensorOf(*in_.op, static_cast<int>(tensor)).dims;
    bool open = std::any_of(dims.begin(), dims.end(), [](const Dim& d) { return d.ellipsis; });
    int64_t limit = open ? int64_t{kMaxRank} : static_cast<int64_t>(dims.size());
    tensor |= Literal(e.operands[1], limit, fmt::format("the axis of {}", e.operands[0].name)) << 8;
  }
  Emit(opcode, tensor);
  return kInt;
}

}  // namespace kbundle::builder
