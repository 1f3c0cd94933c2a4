// Steps: their arguments, their tensor maps, what copies and memsets name. What programs a kernel
// has is its provider's to say.
#include "loader/verify/steps.h"

#include <initializer_list>

#include "kbundle/dtype.h"
#include "loader/provider/provider.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

constexpr uint32_t kMaxTensorMapDims = 5;
constexpr uint32_t kTensorMapBytes = 128;
constexpr uint32_t kTensorMapAlignment = 64;

// Bytes and alignment that an argument takes in a kernel's parameter block.
struct ArgSize {
  uint32_t bytes = 8, alignment = 8;  // a pointer
};

bool OneOf(uint8_t ctype, std::initializer_list<DType> allowed) {
  for (DType dtype : allowed) {
    if (ctype == static_cast<uint8_t>(dtype)) return true;
  }
  return false;
}

Status CheckAttributeArg(const ProgramScope& scope, const fb::Arg& arg) {
  KB_RETURN_IF_ERROR(CheckIndex(arg.index(), Count(scope.op.attributes()), "attribute"));
  const auto type = static_cast<AttributeType>(scope.op.attributes()->Get(arg.index())->type());
  const bool floating = OneOf(arg.ctype(), {DType::kF32, DType::kF64});
  const bool integer = OneOf(arg.ctype(), {DType::kI32, DType::kI64});
  if (static_cast<ArgKind>(arg.kind()) == ArgKind::kFloat) {
    if (type == AttributeType::kFloat && floating && arg.count() == 0) return Status();
    if (type == AttributeType::kFloatArray && floating && arg.count() > 0) {
      return CheckIndex(arg.count() - 1, scope.op.attributes()->Get(arg.index())->max_len(),
                        "element");
    }
  } else {
    if (arg.count() == 0) return DataLoss("an array of 0 elements");
    KB_RETURN_IF_ERROR(CheckCount(arg.count(), kMaxAttributeElements, "array elements"));
    if (scope.op.attributes()->Get(arg.index())->max_len() > arg.count()) {
      return DataLoss(fmt::format("array of {} elements for an attribute of up to {}", arg.count(),
                                  scope.op.attributes()->Get(arg.index())->max_len()));
    }
    if (type == AttributeType::kIntArray && integer) return Status();
    if (type == AttributeType::kFloatArray && floating) return Status();
  }
  return DataLoss(fmt::format("ctype {} does not fit attribute {}", arg.ctype(), arg.index()));
}

bool TakesInteger(uint8_t ctype, bool in_struct) {
  if (in_struct && OneOf(ctype, {DType::kI8, DType::kU8, DType::kI16, DType::kU16})) return true;
  return OneOf(ctype, {DType::kBool, DType::kI32, DType::kU32, DType::kI64, DType::kU64,
                       DType::kF32, DType::kF64});
}

// What may stand by itself and in a struct.
Status CheckValue(const ProgramScope& scope, const fb::Arg& arg, bool in_struct, ArgSize* size) {
  KB_RETURN_IF_ERROR(CheckText(arg.text(), "text"));
  const auto element = static_cast<uint32_t>(SizeOf(static_cast<DType>(arg.ctype())));
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kInteger:
      if (!TakesInteger(arg.ctype(), in_struct)) {
        return DataLoss(fmt::format("ctype {} for an integer", arg.ctype()));
      }
      *size = {element, element};
      return VerifyProgram(scope, arg.program(), true);
    case ArgKind::kFloat:
      *size = {element, element};
      KB_RETURN_IF_ERROR(CheckAttributeArg(scope, arg));
      if (!in_struct && !Absent(arg.program())) return DataLoss("a factor outside a struct");
      return VerifyProgram(scope, arg.program(), false);
    case ArgKind::kArray:
      *size = {element * arg.count(), element};
      return CheckAttributeArg(scope, arg);
    default:
      KB_RETURN_IF_ERROR(VerifyPointer(scope, arg));
      return VerifyProgram(scope, arg.program(), false);
  }
}

Status CheckArg(const ProgramScope& scope, const fb::Step& step, const fb::Arg& arg,
                ArgSize* size) {
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kTensorMap:
      *size = {kTensorMapBytes, kTensorMapAlignment};
      KB_RETURN_IF_ERROR(CheckText(arg.text(), "text"));
      return CheckIndex(arg.index(), Count(step.tensor_maps()), "tensor map");
    case ArgKind::kStruct:
      KB_RETURN_IF_ERROR(CheckText(arg.text(), "text"));
      KB_RETURN_IF_ERROR(CheckIndex(arg.index(), Count(step.structs()), "struct"));
      *size = {Count(step.structs()->Get(arg.index())->bytes()), kStructAlignment};
      return Status();
    default:
      return CheckValue(scope, arg, false, size);
  }
}

// Fields lie inside, one behind the other.
Status CheckStruct(const ProgramScope& scope, const fb::Struct& row) {
  const uint32_t bytes = Count(row.bytes());
  if (bytes == 0) return DataLoss("a struct of 0 bytes");
  KB_RETURN_IF_ERROR(CheckCount(bytes, kMaxArgBytes, "bytes of a struct"));
  uint32_t end = 0;
  for (uint32_t i = 0; i < Count(row.fields()); ++i) {
    const fb::StructField& field = *row.fields()->Get(i);
    ArgSize size;
    KB_VERIFY(CheckValue(scope, *field.arg(), true, &size), "field {}", i);
    if (field.offset() < end || uint64_t{field.offset()} + size.bytes > bytes) {
      return DataLoss(fmt::format("field {} of {} bytes at {}: between {} and {} is its place", i,
                                  size.bytes, field.offset(), end, bytes));
    }
    end = field.offset() + size.bytes;
  }
  return Status();
}

Status CheckArgs(const ProgramScope& scope, const fb::Step& step) {
  KB_RETURN_IF_ERROR(CheckCount(Count(step.args()), kMaxArgs, "arguments"));
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < Count(step.args()); ++i) {
    ArgSize size;
    KB_VERIFY(CheckArg(scope, step, *step.args()->Get(i), &size), "argument {}", i);
    bytes = (bytes + size.alignment - 1) / size.alignment * size.alignment + size.bytes;
  }
  return CheckCount(bytes, kMaxArgBytes, "argument bytes");
}

Status CheckTensorMap(const ProgramScope& scope, const fb::TensorMap& map) {
  KB_RETURN_IF_ERROR(CheckIndex(
      map.tensor(), uint64_t{Count(scope.op.operands())} + Count(scope.op.results()), "tensor"));
  KB_RETURN_IF_ERROR(CheckTypeRef(scope.op, *map.type()));
  KB_RETURN_IF_ERROR(VerifyPrograms(scope, map.dims(), 1, kMaxTensorMapDims, "dims"));
  const uint32_t rank = Count(map.dims());
  KB_RETURN_IF_ERROR(VerifyPrograms(scope, map.strides(), rank - 1, rank - 1, "strides"));
  KB_RETURN_IF_ERROR(VerifyPrograms(scope, map.box(), rank, rank, "box"));
  const uint32_t least = Count(map.element_strides()) == 0 ? 0 : rank;
  KB_RETURN_IF_ERROR(VerifyPrograms(scope, map.element_strides(), least, rank, "element strides"));
  // The driver's enums as of CUDA 13.0; the driver itself has the last word.
  KB_RETURN_IF_ERROR(CheckIndex(map.swizzle(), 7, "swizzle"));
  KB_RETURN_IF_ERROR(CheckIndex(map.interleave(), 3, "interleave"));
  KB_RETURN_IF_ERROR(CheckIndex(map.l2(), 4, "l2 promotion"));
  return CheckIndex(map.fill(), 2, "fill");
}

Status CheckKernel(const ProgramScope& scope, const fb::Step& step) {
  KB_RETURN_IF_ERROR(CheckName(step.kernel(), "kernel"));
  if (Count(step.programs()) != 0) return DataLoss("programs without a place are for own steps");
  KB_RETURN_IF_ERROR(ProviderOf(scope.index, *scope.row).VerifyKernel(scope, step));
  KB_RETURN_IF_ERROR(CheckCount(Count(step.tensor_maps()), kMaxArgs, "tensor maps"));
  for (uint32_t i = 0; i < Count(step.tensor_maps()); ++i) {
    KB_VERIFY(CheckTensorMap(scope, *step.tensor_maps()->Get(i)), "tensor map {}", i);
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(step.structs()), kMaxArgs, "structs"));
  for (uint32_t i = 0; i < Count(step.structs()); ++i) {
    const fb::Struct* row = step.structs()->Get(i);
    if (scope.sound->structs.contains(row)) continue;
    KB_VERIFY(CheckStruct(scope, *row), "struct {}", i);
    scope.sound->structs.insert(row);
  }
  return CheckArgs(scope, step);
}

Status CheckMemoryStep(const ProgramScope& scope, const fb::Step& step, bool copy) {
  if (step.target() == nullptr || copy != (step.source() != nullptr)) {
    return DataLoss("a memset has a target, a copy target and source");
  }
  KB_VERIFY(VerifyWritten(scope, *step.target()), "target");
  if (copy) KB_VERIFY(VerifyPointer(scope, *step.source()), "source");
  if (!Absent(step.target()->program()) || (copy && !Absent(step.source()->program()))) {
    return DataLoss("only arguments have an offset");
  }
  KB_VERIFY(VerifyProgram(scope, step.bytes(), true), "bytes");
  if (Count(step.args()) + Count(step.programs()) != 0 || !NothingOfAKernel(step)) {
    return DataLoss("only kernels have arguments and a grid");
  }
  return Status();
}

// What it means is its provider's business; that it is bounded is ours.
Status CheckOwn(const ProgramScope& scope, const fb::Step& step) {
  if (!NothingOfAKernel(step) || step.target() != nullptr || step.source() != nullptr) {
    return DataLoss("an own step has arguments, programs and nothing that kernels and copies have");
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(step.args()), kMaxArgs, "arguments"));
  KB_RETURN_IF_ERROR(CheckCount(Count(step.programs()), kMaxArgs, "programs"));
  return ProviderOf(scope.index, *scope.row).VerifyOwn(scope, step);
}

}  // namespace

bool NothingOfAKernel(const fb::Step& step) {
  return Count(step.grid()) + Count(step.block()) + Count(step.cluster()) +
                 Count(step.tensor_maps()) + Count(step.structs()) ==
             0 &&
         Absent(step.shared()) && Absent(step.range()) && Absent(step.grain()) &&
         !step.programmatic();
}

Status VerifyPrograms(const ProgramScope& scope,
                      const flatbuffers::Vector<const fb::Span*>* programs, uint32_t least,
                      uint32_t most, std::string_view what) {
  if (Count(programs) < least || Count(programs) > most) {
    return DataLoss(
        fmt::format("{} has {} dims, allowed {} to {}", what, Count(programs), least, most));
  }
  for (uint32_t i = 0; i < Count(programs); ++i) {
    KB_VERIFY(VerifyProgram(scope, programs->Get(i), true), "{} {}", what, i);
  }
  return Status();
}

Status VerifyPointer(const ProgramScope& scope, const fb::Arg& arg) {
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kOperand:
      return CheckIndex(arg.index(), Count(scope.op.operands()), "operand");
    case ArgKind::kResult:
      return CheckIndex(arg.index(), Count(scope.op.results()), "result");
    case ArgKind::kRegion:
      return CheckIndex(arg.index(), Count(scope.row->regions()), "region");
    default:
      return DataLoss(fmt::format("argument kind {} is not a pointer", arg.kind()));
  }
}

Status VerifyWritten(const ProgramScope& scope, const fb::Arg& arg) {
  KB_RETURN_IF_ERROR(VerifyPointer(scope, arg));
  if (static_cast<ArgKind>(arg.kind()) != ArgKind::kOperand) return Status();
  for (uint32_t i = 0; i < Count(scope.op.results()); ++i) {
    if (scope.op.results()->Get(i)->alias() == static_cast<int>(arg.index())) return Status();
  }
  return DataLoss(
      fmt::format("operand {} must not be written: no result is written over it", arg.index()));
}

Status VerifyArg(const ProgramScope& scope, const fb::Arg& arg) {
  ArgSize size;
  return CheckValue(scope, arg, false, &size);
}

Status VerifyStep(const ProgramScope& scope, const fb::Step& step) {
  if (step.when() != nullptr) {
    KB_RETURN_IF_ERROR(CheckText(step.when()->text(), "when text"));
    KB_VERIFY(VerifyProgram(scope, step.when()->program(), true), "when");
  }
  switch (static_cast<StepKind>(step.kind())) {
    case StepKind::kKernel:
      return CheckKernel(scope, step);
    case StepKind::kMemset:
      return CheckMemoryStep(scope, step, false);
    case StepKind::kCopy:
      return CheckMemoryStep(scope, step, true);
    case StepKind::kOwn:
      return CheckOwn(scope, step);
  }
  return DataLoss(fmt::format("unknown step kind {}", step.kind()));
}

}  // namespace kbundle
