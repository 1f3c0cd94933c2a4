// Templates: how a variant is launched.
#include <set>

#include "kbundle/dtype.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

using Programs = flatbuffers::Vector<const fb::Span*>;

constexpr uint32_t kMaxGridDims = 3;
constexpr uint32_t kMaxTensorMapDims = 5;
constexpr uint32_t kTensorMapBytes = 128;
constexpr uint32_t kTensorMapAlignment = 64;

Status CheckPrograms(const ProgramScope& scope, const Programs* programs, uint32_t least,
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

// Bytes and alignment that an argument takes in a kernel's parameter block.
struct ArgSize {
  uint32_t bytes = 8, alignment = 8;  // a pointer
};

Status CheckPointer(const ProgramScope& scope, const fb::Arg& arg) {
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

// An operand belongs to the caller: only one that a result is written over may change.
Status CheckWritten(const ProgramScope& scope, const fb::Arg& arg) {
  KB_RETURN_IF_ERROR(CheckPointer(scope, arg));
  return Writable(scope.op, arg) ? Status()
                                 : DataLoss(fmt::format("operand {} must not be written: no result "
                                                        "is written over it",
                                                        arg.index()));
}

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

Status CheckArg(const ProgramScope& scope, const fb::Step& step, const fb::Arg& arg,
                ArgSize* size) {
  KB_RETURN_IF_ERROR(CheckText(arg.text(), "text"));
  const auto element = static_cast<uint32_t>(SizeOf(static_cast<DType>(arg.ctype())));
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kInteger:
      if (!OneOf(arg.ctype(), {DType::kBool, DType::kI32, DType::kU32, DType::kI64, DType::kU64,
                               DType::kF32, DType::kF64})) {
        return DataLoss(fmt::format("ctype {} for an integer", arg.ctype()));
      }
      *size = {element, element};
      return VerifyProgram(scope, arg.program(), true);
    case ArgKind::kFloat:
      *size = {element, element};
      return CheckAttributeArg(scope, arg);
    case ArgKind::kArray:
      *size = {element * arg.count(), element};
      return CheckAttributeArg(scope, arg);
    case ArgKind::kTensorMap:
      *size = {kTensorMapBytes, kTensorMapAlignment};
      return CheckIndex(arg.index(), Count(step.tensor_maps()), "tensor map");
    default:
      KB_RETURN_IF_ERROR(CheckPointer(scope, arg));
      return VerifyProgram(scope, arg.program(), false);
  }
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
  KB_RETURN_IF_ERROR(CheckPrograms(scope, map.dims(), 1, kMaxTensorMapDims, "dims"));
  const uint32_t rank = Count(map.dims());
  KB_RETURN_IF_ERROR(CheckPrograms(scope, map.strides(), rank - 1, rank - 1, "strides"));
  KB_RETURN_IF_ERROR(CheckPrograms(scope, map.box(), rank, rank, "box"));
  const uint32_t least = Count(map.element_strides()) == 0 ? 0 : rank;
  KB_RETURN_IF_ERROR(CheckPrograms(scope, map.element_strides(), least, rank, "element strides"));
  // The driver's enums as of CUDA 13.0; the driver itself has the last word.
  KB_RETURN_IF_ERROR(CheckIndex(map.swizzle(), 7, "swizzle"));
  KB_RETURN_IF_ERROR(CheckIndex(map.interleave(), 3, "interleave"));
  KB_RETURN_IF_ERROR(CheckIndex(map.l2(), 4, "l2 promotion"));
  return CheckIndex(map.fill(), 2, "fill");
}

Status CheckKernelStep(ProgramScope scope, const fb::Step& step) {
  KB_RETURN_IF_ERROR(CheckName(step.kernel(), "kernel"));
  const auto provider = static_cast<Provider>(scope.row->provider());
  const bool device = provider != Provider::kHost;
  if (provider == Provider::kCuda || provider == Provider::kCudnn ||
      provider == Provider::kCublasLt) {
    KB_RETURN_IF_ERROR(CheckPrograms(scope, step.block(), 1, kMaxGridDims, "block"));
    KB_RETURN_IF_ERROR(CheckPrograms(scope, step.cluster(), 0, kMaxGridDims, "cluster"));
    KB_VERIFY(VerifyProgram(scope, step.shared(), false), "shared");
    if (!Absent(step.range()) || !Absent(step.grain())) return DataLoss("range is for host steps");
  } else if (provider == Provider::kTriton) {
    if (Count(step.block()) + Count(step.cluster()) + Count(step.tensor_maps()) != 0 ||
        !Absent(step.shared()) || !Absent(step.range()) || !Absent(step.grain())) {
      return DataLoss(
          "a triton step has a grid and none of block, cluster, shared, range, grain, "
          "tensor maps");
    }
  } else {
    KB_VERIFY(VerifyProgram(scope, step.range(), true), "range");
    KB_VERIFY(VerifyProgram(scope, step.grain(), false), "grain");
    if (Count(step.grid()) + Count(step.block()) + Count(step.cluster()) != 0 ||
        !Absent(step.shared()) || step.programmatic() || Count(step.tensor_maps()) != 0) {
      return DataLoss("grid, block, cluster, shared, programmatic, tensor maps are for cuda steps");
    }
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(step.tensor_maps()), kMaxArgs, "tensor maps"));
  for (uint32_t i = 0; i < Count(step.tensor_maps()); ++i) {
    KB_VERIFY(CheckTensorMap(scope, *step.tensor_maps()->Get(i)), "tensor map {}", i);
  }
  KB_RETURN_IF_ERROR(CheckArgs(scope, step));
  scope.sm_count = true;
  return device ? CheckPrograms(scope, step.grid(), 1, kMaxGridDims, "grid") : Status();
}

Status CheckMemoryStep(const ProgramScope& scope, const fb::Step& step, bool copy) {
  if (step.target() == nullptr || copy != (step.source() != nullptr)) {
    return DataLoss("a memset has a target, a copy target and source");
  }
  KB_VERIFY(CheckWritten(scope, *step.target()), "target");
  if (copy) KB_VERIFY(CheckPointer(scope, *step.source()), "source");
  if (!Absent(step.target()->program()) || (copy && !Absent(step.source()->program()))) {
    return DataLoss("only arguments have an offset");
  }
  KB_VERIFY(VerifyProgram(scope, step.bytes(), true), "bytes");
  if (Count(step.args()) + Count(step.tensor_maps()) + Count(step.grid()) + Count(step.block()) +
          Count(step.cluster()) !=
      0) {
    return DataLoss("only kernels have arguments and a grid");
  }
  return Status();
}

// A product step has its product and nothing else.
Status CheckProductStep(const ProgramScope& scope, const fb::Step& step) {
  if (static_cast<Provider>(scope.row->provider()) != Provider::kCublasLt) {
    return DataLoss("a product step is for provider cublaslt");
  }
  if (Count(step.args()) + Count(step.tensor_maps()) + Count(step.grid()) + Count(step.block()) +
          Count(step.cluster()) !=
      0) {
    return DataLoss("only kernels have arguments and a grid");
  }
  return VerifyProduct(scope, step.product());
}

// Everything but its arguments is in the blob.
Status CheckExecutionPlan(const ProgramScope& scope, const fb::Step& step) {
  if (Count(step.tensor_maps()) + Count(step.grid()) + Count(step.block()) +
              Count(step.cluster()) !=
          0 ||
      !Absent(step.shared()) || !Absent(step.range()) || !Absent(step.grain()) ||
      step.programmatic()) {
    return DataLoss("an execution plan has arguments and nothing that kernels have");
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(step.args()), kMaxArgs, "arguments"));
  for (uint32_t i = 0; i < Count(step.args()); ++i) {
    const fb::Arg& arg = *step.args()->Get(i);
    const auto kind = static_cast<ArgKind>(arg.kind());
    if (kind == ArgKind::kArray || kind == ArgKind::kTensorMap) {
      return DataLoss(
          fmt::format("argument {} of kind {}, which no execution plan takes", i, arg.kind()));
    }
    ArgSize size;
    KB_VERIFY(CheckArg(scope, step, arg, &size), "argument {}", i);
  }
  return Status();
}

Status CheckStep(const ProgramScope& scope, const fb::Step& step) {
  if (step.when() != nullptr) {
    KB_RETURN_IF_ERROR(CheckText(step.when()->text(), "when text"));
    KB_VERIFY(VerifyProgram(scope, step.when()->program(), true), "when");
  }
  const auto provider = static_cast<Provider>(scope.row->provider());
  const auto kind = static_cast<StepKind>(step.kind());
  if (kind == StepKind::kExecutionPlan && provider != Provider::kCudnn) {
    return DataLoss("execution plans are for the provider cudnn");
  }
  if (kind != StepKind::kProduct && step.product() != nullptr) {
    return DataLoss("only a product step has a product");
  }
  switch (kind) {
    case StepKind::kKernel:
      return CheckKernelStep(scope, step);
    case StepKind::kExecutionPlan:
      return CheckExecutionPlan(scope, step);
    case StepKind::kProduct:
      return CheckProductStep(scope, step);
    case StepKind::kMemset:
      return CheckMemoryStep(scope, step, false);
    case StepKind::kCopy:
      return CheckMemoryStep(scope, step, true);
  }
  return DataLoss(fmt::format("unknown step kind {}", step.kind()));
}

Status CheckLets(ProgramScope* scope) {
  const auto* lets = scope->row->lets();
  KB_RETURN_IF_ERROR(CheckCount(Count(lets), kMaxLets, "lets"));
  scope->sm_count = true;
  for (uint32_t i = 0; i < Count(lets); ++i) {
    KB_RETURN_IF_ERROR(CheckName(lets->Get(i)->text(), "let"));
    bool uses_sm_count = false;
    KB_VERIFY(VerifyProgram(*scope, lets->Get(i)->program(), true, &uses_sm_count), "let '{}'",
              lets->Get(i)->text()->string_view());
    if (uses_sm_count) scope->lets_with_sm_count |= 1u << i;
    scope->lets = i + 1;
  }
  scope->sm_count = false;
  return Status();
}

Status CheckTunables(const fb::Template& row) {
  KB_RETURN_IF_ERROR(CheckCount(Count(row.tunables()), kMaxTunables, "tunables"));
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < Count(row.tunables()); ++i) {
    KB_RETURN_IF_ERROR(CheckName(row.tunables()->Get(i), "tunable"));
    if (!names.insert(row.tunables()->Get(i)->string_view()).second) {
      return DataLoss(
          fmt::format("tunable '{}' appears twice", row.tunables()->Get(i)->string_view()));
    }
  }
  return Status();
}

Status CheckRegions(const ProgramScope& scope) {
  const auto* regions = scope.row->regions();
  KB_RETURN_IF_ERROR(CheckCount(Count(regions), kMaxRegions, "workspace regions"));
  for (uint32_t i = 0; i < Count(regions); ++i) {
    KB_RETURN_IF_ERROR(CheckName(regions->Get(i)->name(), "region"));
    KB_RETURN_IF_ERROR(CheckText(regions->Get(i)->text(), "region text"));
    KB_RETURN_IF_ERROR(CheckTypeRef(scope.op, *regions->Get(i)->type()));
    KB_VERIFY(VerifyProgram(scope, regions->Get(i)->bytes(), true), "region '{}'",
              regions->Get(i)->name()->string_view());
  }
  return Status();
}

}  // namespace

Status VerifyTemplate(const fb::Index& index, const fb::Op& op, const fb::Template& row) {
  if (row.provider() != static_cast<int>(Provider::kCuda) &&
      row.provider() != static_cast<int>(Provider::kHost) &&
      row.provider() != static_cast<int>(Provider::kTriton) &&
      row.provider() != static_cast<int>(Provider::kCudnn) &&
      row.provider() != static_cast<int>(Provider::kCublasLt)) {
    return DataLoss(fmt::format("unknown provider {}", row.provider()));
  }
  KB_RETURN_IF_ERROR(CheckText(row.source(), "source"));
  KB_RETURN_IF_ERROR(CheckText(row.compiler(), "compiler"));
  ProgramScope scope{.index = index, .op = op, .row = &row};
  KB_RETURN_IF_ERROR(CheckTunables(row));
  KB_RETURN_IF_ERROR(CheckLets(&scope));
  KB_RETURN_IF_ERROR(CheckRules(scope, row.when(), "when"));
  KB_RETURN_IF_ERROR(CheckRegions(scope));
  KB_RETURN_IF_ERROR(CheckCount(Count(row.steps()), kMaxSteps, "steps"));
  if (Count(row.steps()) == 0) return DataLoss("a variant without steps");
  for (uint32_t i = 0; i < Count(row.steps()); ++i) {
    KB_VERIFY(CheckStep(scope, *row.steps()->Get(i)), "step {}", i);
  }
  return Status();
}

}  // namespace kbundle
