// A product names operands, attributes and programs by number, and cuBLASLt is handed what they
// say: so each number, and each program for what it is used as, is looked at once, when a bundle
// is opened.
#include "kbundle/provider/cublaslt.h"
#include "loader/provider/cublaslt/cublaslt_provider.h"
#include "loader/support/absent.h"
#include "loader/verify/steps.h"

namespace kbundle {
namespace {

Status CheckTensor(const ProgramScope& scope, const fb::Arg& arg, ProductTensor tensor) {
  KB_RETURN_IF_ERROR(CheckText(arg.text(), "text"));
  if (!Absent(arg.program())) return DataLoss("only arguments have an offset");
  const auto kind = static_cast<ArgKind>(arg.kind());
  if (arg.kind() == 0) {
    const bool needed =
        tensor == ProductTensor::kA || tensor == ProductTensor::kB || tensor == ProductTensor::kD;
    return needed ? DataLoss("it is not named") : Status();
  }
  if (kind == ArgKind::kRegion ||
      (tensor != ProductTensor::kWorkspace && kind < ArgKind::kRegion)) {
    return VerifyPointer(scope, arg);
  }
  return DataLoss(fmt::format("argument kind {} cannot stand here", arg.kind()));
}

Status CheckScalar(const ProgramScope& scope, const fb::Arg& arg) {
  KB_RETURN_IF_ERROR(CheckText(arg.text(), "text"));
  if (arg.kind() == 0) return Status();
  if (arg.kind() == static_cast<int>(ArgKind::kInteger)) {
    return VerifyProgram(scope, arg.program(), true);
  }
  if (arg.kind() != static_cast<int>(ArgKind::kFloat)) {
    return DataLoss(fmt::format("argument kind {} is no number", arg.kind()));
  }
  KB_RETURN_IF_ERROR(CheckIndex(arg.index(), Count(scope.op.attributes()), "attribute"));
  const int type = scope.op.attributes()->Get(arg.index())->type();
  if (type == static_cast<int>(AttributeType::kFloat)) return Status();
  return DataLoss(fmt::format("attribute {} is no float", arg.index()));
}

constexpr ProductTensor kWritten[] = {ProductTensor::kD, ProductTensor::kBiasGradient,
                                      ProductTensor::kDAmax};

}  // namespace

Status CublasLtProvider::VerifyOwn(const ProgramScope& scope, const fb::Step& step) const {
  if (Count(step.args()) != kProductArgs || Count(step.programs()) != kProductPrograms) {
    return DataLoss(fmt::format("a product of {} arguments and {} programs, must have {} and {}",
                                Count(step.args()), Count(step.programs()), kProductArgs,
                                kProductPrograms));
  }
  for (uint32_t i = 0; i < kProductTensors; ++i) {
    KB_VERIFY(CheckTensor(scope, *step.args()->Get(i), static_cast<ProductTensor>(i)), "tensor {}",
              i);
  }
  for (ProductTensor written : kWritten) {
    const auto place = static_cast<uint32_t>(written);
    const fb::Arg& arg = *step.args()->Get(place);
    if (arg.kind() != 0) KB_VERIFY(VerifyWritten(scope, arg), "tensor {}", place);
  }
  constexpr auto kLastNeeded = static_cast<uint32_t>(ProductNumber::kK);
  for (uint32_t i = 0; i < kProductPrograms; ++i) {
    KB_VERIFY(VerifyProgram(scope, step.programs()->Get(i), i <= kLastNeeded), "program {}", i);
  }
  KB_VERIFY(CheckScalar(scope, *step.args()->Get(kProductAlpha)), "alpha");
  KB_VERIFY(CheckScalar(scope, *step.args()->Get(kProductBeta)), "beta");
  return Status();
}

}  // namespace kbundle
