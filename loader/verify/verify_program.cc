// Programs: opcodes known, operands in range for their scope, and the stack's depth, which is known
// without running because there are no jumps.
#include "kbundle/arithmetic.h"
#include "kbundle/dtype.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

struct Instruction {
  uint32_t opcode;
  uint32_t operand;
};

uint32_t TensorCount(const ProgramScope& scope) {
  // An op's own programs are evaluated before its results have shapes.
  return Count(scope.op.operands()) + (scope.row != nullptr ? Count(scope.op.results()) : 0);
}

Status CheckTensorRead(const ProgramScope& scope, const Instruction& code, bool with_axis) {
  KB_RETURN_IF_ERROR(CheckIndex(code.operand & 0xff, TensorCount(scope), "tensor"));
  return CheckIndex(code.operand >> 8, with_axis ? kMaxRank : 1, "axis");
}

Status CheckAttributeRead(const ProgramScope& scope, const Instruction& code) {
  const uint32_t number = code.operand & 0xff;
  KB_RETURN_IF_ERROR(CheckIndex(number, Count(scope.op.attributes()), "attribute"));
  const fb::Attribute& attribute = *scope.op.attributes()->Get(number);
  const auto type = static_cast<AttributeType>(attribute.type());
  const bool array = type == AttributeType::kIntArray || type == AttributeType::kFloatArray;
  switch (static_cast<Opcode>(code.opcode)) {
    case Opcode::kLength:
      if (array) return CheckIndex(code.operand >> 8, 1, "element of a length");
      break;
    case Opcode::kElement:
      if (type == AttributeType::kIntArray) {
        return CheckIndex(code.operand >> 8, attribute.max_len(), "array element");
      }
      break;
    case Opcode::kFloatBits:
      if (type == AttributeType::kFloat) {
        return CheckIndex(code.operand >> 8, 1, "element of a scalar attribute");
      }
      break;
    default:
      if (!array && type != AttributeType::kFloat) {
        return CheckIndex(code.operand >> 8, 1, "element of a scalar attribute");
      }
  }
  return DataLoss(fmt::format("opcode {} does not fit attribute '{}' of type {}", code.opcode,
                              attribute.name()->string_view(), attribute.type()));
}

Status CheckTemplateOnly(const ProgramScope& scope, const Instruction& code, bool* uses_sm_count) {
  if (scope.row == nullptr) {
    return DataLoss(
        fmt::format("opcode {} is for variants, not for an op's interface", code.opcode));
  }
  switch (static_cast<Opcode>(code.opcode)) {
    case Opcode::kTunable:
      return CheckIndex(code.operand, Count(scope.row->tunables()), "tunable");
    case Opcode::kAlign:
      return CheckTensorRead(scope, code, false);
    case Opcode::kLet:
      KB_RETURN_IF_ERROR(CheckIndex(code.operand, scope.lets, "let (only earlier ones)"));
      if ((scope.lets_with_sm_count >> code.operand & 1) == 0) return Status();
      break;
    default:
      break;  // kSmCount
  }
  *uses_sm_count = true;
  return scope.sm_count ? Status() : DataLoss("sm_count is only for grids");
}

Status CheckLoad(const ProgramScope& scope, const Instruction& code, bool* uses_sm_count) {
  switch (static_cast<Opcode>(code.opcode)) {
    case Opcode::kConst:
      KB_RETURN_IF_ERROR(CheckIndex(code.operand, Count(scope.index.constants()), "constant"));
      return NeedRows(scope.pages, scope.index.constants(), code.operand, 1);
    case Opcode::kDim:
      return CheckIndex(code.operand, Count(scope.op.symbols()), "symbol");
    case Opcode::kAttribute:
    case Opcode::kLength:
    case Opcode::kElement:
    case Opcode::kFloatBits:
      return CheckAttributeRead(scope, code);
    case Opcode::kSizeOfType:
    case Opcode::kType:
      return CheckIndex(code.operand, Count(scope.op.types()), "type parameter");
    case Opcode::kPresent:
    case Opcode::kRank:
      return CheckTensorRead(scope, code, false);
    case Opcode::kTensorDim:
    case Opcode::kStride:
      return CheckTensorRead(scope, code, true);
    case Opcode::kAlign:
    case Opcode::kTunable:
    case Opcode::kLet:
    case Opcode::kSmCount:
      return CheckTemplateOnly(scope, code, uses_sm_count);
    default:
      return DataLoss(fmt::format("unknown opcode {}", code.opcode));
  }
}

Status CheckInstruction(const ProgramScope& scope, const Instruction& code, int* depth,
                        bool* uses_sm_count) {
  const auto opcode = static_cast<Opcode>(code.opcode);
  const int arity = Arity(opcode);
  if (!IsOpcode(opcode)) return DataLoss(fmt::format("unknown opcode {}", code.opcode));
  if (arity == 0) {
    KB_RETURN_IF_ERROR(CheckLoad(scope, code, uses_sm_count));
  } else if (code.operand != 0) {
    return DataLoss(
        fmt::format("operator {} carries operand {}, not 0", code.opcode, code.operand));
  }
  if (*depth < arity) {
    return DataLoss(fmt::format("stack underflow: opcode {} needs {} values and finds {}",
                                code.opcode, arity, *depth));
  }
  *depth += 1 - arity;
  return CheckCount(*depth, kMaxStackDepth, "stack slots");
}

}  // namespace

Status VerifyProgram(const ProgramScope& scope, const fb::Span* program, bool required,
                     bool* uses_sm_count) {
  bool ignored = false;
  if (uses_sm_count == nullptr) uses_sm_count = &ignored;
  if (Absent(program)) return required ? DataLoss("program is missing") : Status();
  KB_RETURN_IF_ERROR(CheckCount(program->count(), kMaxProgramLength, "instructions"));
  const uint64_t end = uint64_t{program->first()} + program->count();
  if (end > Count(scope.index.code())) {
    return DataLoss(
        fmt::format("program ends at instruction {} of {}", end, Count(scope.index.code())));
  }
  if (scope.sound != nullptr && scope.sound->HasProgram(*program)) return Status();
  KB_RETURN_IF_ERROR(Spend(program->count()));
  KB_RETURN_IF_ERROR(NeedRows(scope.pages, scope.index.code(), program->first(), program->count()));
  const uint32_t* words = scope.index.code()->data() + program->first();
  int depth = 0;
  bool knows_template = false, uses = false;
  for (uint32_t i = 0; i < program->count(); ++i) {
    const uint32_t word = words[i];
    const auto opcode = static_cast<Opcode>(word & 0xff);
    knows_template |= opcode == Opcode::kTunable || opcode == Opcode::kLet;
    KB_VERIFY(CheckInstruction(scope, {word & 0xff, word >> 8}, &depth, &uses), "instruction {}",
              i);
  }
  if (depth != 1) return DataLoss(fmt::format("program leaves {} values, not 1", depth));
  *uses_sm_count |= uses;
  if (!uses && scope.sound != nullptr) scope.sound->AddProgram(*program, knows_template);
  return Status();
}

Status CheckRules(const ProgramScope& scope,
                  const flatbuffers::Vector<flatbuffers::Offset<fb::Rule>>* rules,
                  std::string_view what) {
  KB_RETURN_IF_ERROR(CheckCount(Count(rules), kMaxRules, what));
  for (uint32_t i = 0; i < Count(rules); ++i) {
    KB_VERIFY(CheckText(rules->Get(i)->text(), "text"), "{} {}", what, i);
    KB_VERIFY(VerifyProgram(scope, rules->Get(i)->program(), true), "{} {}", what, i);
  }
  return Status();
}

}  // namespace kbundle
