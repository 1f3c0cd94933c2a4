// The loader's rules for absent tensors and axes that are not there, over the builder's own data: a
// grid pruned here and a variant refused there must agree. Overflow is an error value in the slot,
// never undefined.
#include "builder/expression/evaluate.h"

#include <bit>
#include <cstddef>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

Slot Stride(const std::vector<int64_t>& dims, size_t axis) {
  Slot stride{1};
  for (size_t i = axis + 1; i < dims.size(); ++i) {
    Slot pair[2] = {stride, {dims[i]}};
    stride = Apply(Opcode::kMul, pair);
  }
  return stride;
}

Slot Load(Opcode opcode, int64_t operand, const Bindings& bindings) {
  size_t index = operand & 0xff;
  size_t axis = operand >> 8;
  switch (opcode) {
    case Opcode::kConst:
      return {operand};
    case Opcode::kDim:
      return {bindings.symbols[operand]};
    case Opcode::kAttribute:
      return {bindings.attributes[operand].integers[0]};
    case Opcode::kLength:
      return {static_cast<int64_t>(bindings.attributes[operand].length)};
    case Opcode::kPresent:
      return {bindings.tensors[operand].present};
    case Opcode::kSizeOfType:
      return {SizeOf(bindings.types[operand])};
    case Opcode::kType:
      return {static_cast<int64_t>(bindings.types[operand])};
    case Opcode::kAlign:  // an absent tensor has no elements to misalign
      return {bindings.tensors[operand].present ? bindings.alignment
                                                : int64_t{kWorkspaceAlignment}};
    case Opcode::kRank:
      return {static_cast<int64_t>(bindings.tensors[operand].dims.size())};
    case Opcode::kTunable:
      return {bindings.tunables[operand]};
    case Opcode::kLet:
      return {bindings.lets[operand]};
    case Opcode::kSmCount:
      return {bindings.sm_count};
    case Opcode::kFloatBits:
      return {std::bit_cast<uint32_t>(static_cast<float>(bindings.attributes[operand].number))};
    case Opcode::kElement: {
      const std::vector<int64_t>& integers = bindings.attributes[index].integers;
      if (axis >= integers.size()) return {0, SlotError::kNoSuchAxis};
      return {integers[axis]};
    }
    case Opcode::kTensorDim:
    case Opcode::kStride: {
      const std::vector<int64_t>& dims = bindings.tensors[index].dims;
      if (!bindings.tensors[index].present) return {0};
      if (axis >= dims.size()) return {0, SlotError::kNoSuchAxis};
      return opcode == Opcode::kStride ? Stride(dims, axis) : Slot{dims[axis]};
    }
    default:
      return {0, SlotError::kOverflow};
  }
}

}  // namespace

Slot Run(const std::vector<Instruction>& code, const Bindings& bindings) {
  // Raw, because clearing 32 slots costs more than most programs.
  alignas(Slot) std::byte storage[kMaxStackDepth * sizeof(Slot)];
  Slot* const stack = reinterpret_cast<Slot*>(storage);
  size_t depth = 0;
  for (const Instruction& instruction : code) {
    size_t arity = Arity(instruction.opcode);
    KB_CHECK(depth >= arity && depth - arity < kMaxStackDepth);
    depth -= arity;
    stack[depth] = arity == 0 ? Load(instruction.opcode, instruction.operand, bindings)
                              : Apply(instruction.opcode, &stack[depth]);
    ++depth;
  }
  KB_CHECK(depth == 1);
  return stack[0];
}

Slot Run(const Term& term, const Bindings& bindings) {
  if (term.operands.empty()) return Load(term.opcode, term.operand, bindings);
  Slot values[3] = {Run(term.operands[0], bindings), {}, {}};
  const bool holds = values[0].ok() && values[0].value != 0;
  switch (term.opcode) {
    case Opcode::kSelect:
      return values[0].ok() ? Run(term.operands[holds ? 1 : 2], bindings) : values[0];
    case Opcode::kAnd:
      return holds ? Run(term.operands[1], bindings) : values[0];
    case Opcode::kOr:
      return values[0].ok() && !holds ? Run(term.operands[1], bindings) : values[0];
    default:
      if (term.operands.size() == 2) values[1] = Run(term.operands[1], bindings);
      return Apply(term.opcode, values);
  }
}

Result<int64_t> Evaluate(const Program& program, const Bindings& bindings) {
  Slot slot = Run(program.code, bindings);
  if (slot.ok()) return slot.value;
  return OutOfRange(fmt::format("'{}' {}", program.text, Describe(slot.error)));
}

}  // namespace kbundle::builder
