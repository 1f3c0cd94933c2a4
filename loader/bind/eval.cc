// Postfix programs without jumps. Both sides of && || ?: are computed; a failed side is an error
// slot, looked at only when it decides. So a program's cost is its length, whatever the data.
#include "loader/bind/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "kbundle/key.h"
#include "loader/open/index.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

Slot Fail(SlotError error) { return {0, error}; }

// An absent tensor has no elements to misalign: neutral in align(x, y, ..).
constexpr int64_t kAlignmentOfAbsent = kWorkspaceAlignment;

// The dim of a shape's text that an axis belongs to; an ellipsis has several axes.
const fb::Dim& DimOf(const fb::Tensor& shape, size_t rank, size_t axis) {
  const size_t terms = Count(shape.dims());
  size_t at = 0;
  for (uint32_t i = 0; i + 1 < terms; ++i) {
    at += shape.dims()->Get(i)->ellipsis() ? rank + 1 - terms : 1;
    if (axis < at) return *shape.dims()->Get(i);
  }
  return *shape.dims()->Get(static_cast<uint32_t>(terms - 1));
}

// Whether the size of an axis, or with axis -1 the rank, is among what is hidden. Sizes that a
// program computes are asked for what they look at; that looks at no other tensor's sizes, since an
// interface may go in circles there.
bool IsHidden(const EvalContext& context, uint32_t number, int64_t axis) {
  const fb::Op& op = OpOf(*context.bundle, context.problem->op);
  const uint32_t operands = Count(op.operands());
  const fb::Tensor& shape =
      number < operands ? *op.operands()->Get(number) : *op.results()->Get(number - operands);
  const size_t rank = TensorOf(*context.problem, number).dims.size();
  if (axis >= 0) {
    const fb::Dim& dim = DimOf(shape, rank, static_cast<size_t>(axis));
    if (dim.symbol() >= 0) return (*context.hidden)[static_cast<size_t>(dim.symbol())];
    if (context.within_dim) return true;
    EvalContext inner = context;
    inner.within_dim = true;
    return RunProgram(inner, dim.program()).error == SlotError::kBatch;
  }
  for (uint32_t i = 0; i < Count(shape.dims()); ++i) {
    const fb::Dim& dim = *shape.dims()->Get(i);
    if (dim.ellipsis() && (*context.hidden)[static_cast<size_t>(dim.symbol())]) return true;
  }
  return false;
}

// A dense stride is the product of the sizes behind its axis.
bool StrideIsHidden(const EvalContext& context, uint32_t number, size_t axis) {
  const TensorSpec& tensor = TensorOf(*context.problem, number);
  if (!tensor.strides.empty()) return false;
  for (size_t i = axis + 1; i < tensor.dims.size(); ++i) {
    if (IsHidden(context, number, static_cast<int64_t>(i))) return true;
  }
  return false;
}

Slot DenseStride(const TensorSpec& tensor, size_t axis) {
  int64_t stride = 1;
  for (size_t i = axis + 1; i < tensor.dims.size(); ++i) {
    if (__builtin_mul_overflow(stride, tensor.dims[i], &stride)) return Fail(SlotError::kOverflow);
  }
  return {stride};
}

Slot LoadTensor(const EvalContext& context, Opcode opcode, uint32_t operand) {
  const TensorSpec& tensor = TensorOf(*context.problem, operand & 0xff);
  const size_t axis = operand >> 8;
  switch (opcode) {
    case Opcode::kPresent:
      return {tensor.present};
    case Opcode::kRank:
      if (context.hidden != nullptr && tensor.present && IsHidden(context, operand & 0xff, -1)) {
        return Fail(SlotError::kBatch);
      }
      return {static_cast<int64_t>(tensor.dims.size())};
    case Opcode::kAlign:
      return {tensor.present ? std::max(context.alignment, SizeOf(tensor.dtype))
                             : kAlignmentOfAbsent};
    default:
      break;
  }
  if (!tensor.present) return {0};
  if (axis >= tensor.dims.size()) return Fail(SlotError::kNoSuchAxis);
  if (context.hidden != nullptr &&
      (opcode == Opcode::kTensorDim ? IsHidden(context, operand & 0xff, static_cast<int64_t>(axis))
                                    : StrideIsHidden(context, operand & 0xff, axis))) {
    return Fail(SlotError::kBatch);
  }
  if (opcode == Opcode::kTensorDim) return {tensor.dims[axis]};
  return tensor.strides.empty() ? DenseStride(tensor, axis) : Slot{tensor.strides[axis]};
}

Slot LoadElement(const Problem& problem, uint32_t operand) {
  const std::vector<int64_t>& values = problem.attributes[operand & 0xff].integers;
  const size_t element = operand >> 8;
  return element < values.size() ? Slot{values[element]} : Fail(SlotError::kNoSuchAxis);
}

int64_t Length(const Problem::Attribute& attribute) {
  return static_cast<int64_t>(std::max(attribute.integers.size(), attribute.numbers.size()));
}

Slot Load(const EvalContext& context, const fb::Index& index, Opcode opcode, uint32_t operand) {
  const Problem& problem = *context.problem;
  switch (opcode) {
    case Opcode::kConst:
      return {index.constants()->Get(operand)};
    case Opcode::kDim:
      if (context.hidden != nullptr && (*context.hidden)[operand]) return Fail(SlotError::kBatch);
      return {problem.symbols[operand]};
    case Opcode::kAttribute:
      return {problem.attributes[operand].integer};
    case Opcode::kLength:
      return {Length(problem.attributes[operand])};
    case Opcode::kElement:
      return LoadElement(problem, operand);
    case Opcode::kSizeOfType:
      return {SizeOf(TypeAt(problem.types, static_cast<int>(operand)))};
    case Opcode::kType:
      return {static_cast<int64_t>(TypeAt(problem.types, static_cast<int>(operand)))};
    case Opcode::kTunable:
      return {context.tunables[operand]};
    case Opcode::kLet:
      if (context.let_errors >> operand & 1) return Fail(SlotError::kLet);
      return {context.lets[operand]};
    case Opcode::kSmCount:
      return {context.sm_count};
    case Opcode::kFloatBits:
      return {std::bit_cast<uint32_t>(static_cast<float>(problem.attributes[operand].number))};
    default:
      return LoadTensor(context, opcode, operand);
  }
}

// Replaces the two values below `top` by the operator's.
template <Opcode opcode>
bool Two(int64_t*& top) {
  --top;
  const Slot value = arithmetic_internal::Binary(opcode, top[-1], top[0]);
  top[-1] = value.value;
  return value.ok();
}

// Most instructions of most programs; false: none of these, or it fails. Values alone, without the
// slots' errors.
bool RunOperator(Opcode opcode, int64_t*& top) {
  switch (opcode) {
    case Opcode::kAdd:
      return Two<Opcode::kAdd>(top);
    case Opcode::kSub:
      return Two<Opcode::kSub>(top);
    case Opcode::kMul:
      return Two<Opcode::kMul>(top);
    case Opcode::kDiv:
      return Two<Opcode::kDiv>(top);
    case Opcode::kMod:
      return Two<Opcode::kMod>(top);
    case Opcode::kMin:
      return Two<Opcode::kMin>(top);
    case Opcode::kMax:
      return Two<Opcode::kMax>(top);
    case Opcode::kCeilDiv:
      return Two<Opcode::kCeilDiv>(top);
    case Opcode::kEq:
      return Two<Opcode::kEq>(top);
    case Opcode::kNe:
      return Two<Opcode::kNe>(top);
    case Opcode::kLt:
      return Two<Opcode::kLt>(top);
    case Opcode::kLe:
      return Two<Opcode::kLe>(top);
    case Opcode::kGt:
      return Two<Opcode::kGt>(top);
    case Opcode::kGe:
      return Two<Opcode::kGe>(top);
    case Opcode::kAnd:
      --top;
      if (top[-1] != 0) top[-1] = top[0];
      return true;
    case Opcode::kOr:
      --top;
      if (top[-1] == 0) top[-1] = top[0];
      return true;
    case Opcode::kSelect:
      top -= 2;
      top[-1] = top[-1] != 0 ? top[0] : top[1];
      return true;
    default:
      return false;
  }
}

// Without a failure on the way, which most programs do not meet: false where there is one, whether
// or not it decides, and where a size is hidden.
bool RunPlainly(const EvalContext& context, const fb::Index& index, const uint32_t* code,
                uint32_t count, int64_t* result) {
  if (context.hidden != nullptr) return false;
  const Problem& problem = *context.problem;
  int64_t stack[kMaxStackDepth];
  int64_t* top = stack;  // behind the last value
  for (uint32_t i = 0; i < count; ++i) {
    const auto opcode = static_cast<Opcode>(code[i] & 0xff);
    const uint32_t operand = code[i] >> 8;
    switch (opcode) {
      case Opcode::kConst:
        *top++ = index.constants()->Get(operand);
        break;
      case Opcode::kDim:
        *top++ = problem.symbols[operand];
        break;
      case Opcode::kAttribute:
        *top++ = problem.attributes[operand].integer;
        break;
      case Opcode::kTunable:
        *top++ = context.tunables[operand];
        break;
      case Opcode::kSizeOfType:
        *top++ = SizeOf(TypeAt(problem.types, static_cast<int>(operand)));
        break;
      default: {
        if (opcode > Opcode::kFloatBits) {
          if (RunOperator(opcode, top)) break;
          return false;
        }
        const Slot value = Load(context, index, opcode, operand);
        if (!value.ok()) return false;
        *top++ = value.value;
      }
    }
  }
  *result = top[-1];
  return true;
}

}  // namespace

const TensorSpec& TensorOf(const Problem& problem, uint32_t tensor) {
  const size_t operands = problem.operands.size();
  return tensor < operands ? problem.operands[tensor] : problem.results[tensor - operands];
}

Slot RunProgram(const EvalContext& context, const fb::Index& index, uint32_t first,
                uint32_t count) {
  const uint32_t* code = index.code()->data() + first;
  if (Slot plain; RunPlainly(context, index, code, count, &plain.value)) return plain;
  // Raw, because clearing 32 slots costs more than most programs.
  alignas(Slot) std::byte storage[kMaxStackDepth * sizeof(Slot)];
  auto* top = reinterpret_cast<Slot*>(storage) - 1;
  for (uint32_t i = 0; i < count; ++i) {
    const auto opcode = static_cast<Opcode>(code[i] & 0xff);
    if (opcode <= Opcode::kFloatBits) {
      *++top = Load(context, index, opcode, code[i] >> 8);
    } else {
      top -= Arity(opcode) - 1;
      *top = Apply(opcode, top);
    }
  }
  return *top;
}

bool Uses(const fb::Index& index, const fb::Span& program, Opcode opcode) {
  const uint32_t* code = index.code()->data() + program.first();
  return std::any_of(code, code + program.count(), [opcode](uint32_t word) {
    return static_cast<Opcode>(word & 0xff) == opcode;
  });
}

PointReads PointReadsOf(const fb::Index& index, const fb::Span& program) {
  PointReads reads = {false, false};
  const uint32_t* code = index.code()->data() + program.first();
  for (uint32_t i = 0; i < program.count(); ++i) {
    const auto opcode = static_cast<Opcode>(code[i] & 0xff);
    reads.tunables |= opcode == Opcode::kTunable;
    reads.lets |= opcode == Opcode::kLet;
  }
  return reads;
}

std::string SymbolValues(const Bundle& bundle, const Problem& problem) {
  const auto* names = OpOf(bundle, problem.op).symbols();
  std::string text;
  for (size_t i = 0; i < problem.symbols.size() && i < (names ? names->size() : 0); ++i) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", names->Get(i)->string_view(),
                        problem.symbols[i]);
  }
  return text.empty() ? "no symbols" : text;
}

std::string DescribeEvalError(const EvalContext& context, SlotError error, std::string_view text) {
  return fmt::format("`{}` {} with {}", text, Describe(error),
                     SymbolValues(*context.bundle, *context.problem));
}

Result<int64_t> Evaluate(const EvalContext& context, uint32_t first, uint32_t count,
                         std::string_view text) {
  const Slot value = RunProgram(context, IndexOf(*context.bundle), first, count);
  if (value.ok()) return value.value;
  return OutOfRange(DescribeEvalError(context, value.error, text));
}

std::span<const int64_t> Tunables(const Bundle& bundle, uint32_t variant) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Variant& row = *index.variants()->Get(variant);
  const auto* names = index.templates()->Get(row.template_index())->tunables();
  if (names == nullptr || names->size() == 0) return {};
  return {index.constants()->data() + row.tunables(), names->size()};
}

LetValues EvaluateLets(const EvalContext& context, uint32_t variant) {
  const fb::Index& index = IndexOf(*context.bundle);
  const auto* lets =
      index.templates()->Get(index.variants()->Get(variant)->template_index())->lets();
  LetValues result;
  if (lets == nullptr) return result;
  EvalContext own = context;
  own.tunables = Tunables(*context.bundle, variant);
  for (uint32_t i = 0; i < lets->size(); ++i) {
    own.lets = result.view();
    own.let_errors = result.errors;
    const Slot value = RunProgram(own, *lets->Get(i)->program());
    result.values[i] = value.value;
    if (!value.ok()) result.errors |= 1u << i;
    result.count = i + 1;
  }
  return result;
}

}  // namespace kbundle
