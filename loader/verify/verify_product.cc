// Product steps: what a matrix product refers to.
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

constexpr auto kTensors = static_cast<uint32_t>(ProductTensor::kCount);
constexpr auto kNumbers = static_cast<uint32_t>(ProductNumber::kCount);
constexpr auto kConditions = static_cast<uint32_t>(ProductCondition::kCount);

Status CheckProductTensor(const ProgramScope& scope, const fb::Arg& arg, ProductTensor tensor) {
  KB_RETURN_IF_ERROR(CheckText(arg.text(), "text"));
  const bool region = tensor == ProductTensor::kWorkspace;
  if (!Absent(arg.program())) return DataLoss("only arguments have an offset");
  switch (arg.kind()) {
    case 0: {
      const bool needed =
          tensor == ProductTensor::kA || tensor == ProductTensor::kB || tensor == ProductTensor::kD;
      return needed ? DataLoss("it is not named") : Status();
    }
    case static_cast<int>(ArgKind::kOperand):
      if (region) break;
      return CheckIndex(arg.index(), Count(scope.op.operands()), "operand");
    case static_cast<int>(ArgKind::kResult):
      if (region) break;
      return CheckIndex(arg.index(), Count(scope.op.results()), "result");
    case static_cast<int>(ArgKind::kRegion):
      return CheckIndex(arg.index(), Count(scope.row->regions()), "region");
    default:
      break;
  }
  return DataLoss(fmt::format("argument kind {} cannot stand here", arg.kind()));
}

Status CheckScalar(const ProgramScope& scope, const fb::Arg* arg) {
  if (arg == nullptr) return Status();
  KB_RETURN_IF_ERROR(CheckText(arg->text(), "text"));
  if (arg->kind() == static_cast<int>(ArgKind::kInteger)) {
    return VerifyProgram(scope, arg->program(), true);
  }
  if (arg->kind() != static_cast<int>(ArgKind::kFloat)) {
    return DataLoss(fmt::format("argument kind {} is no number", arg->kind()));
  }
  KB_RETURN_IF_ERROR(CheckIndex(arg->index(), Count(scope.op.attributes()), "attribute"));
  const int type = scope.op.attributes()->Get(arg->index())->type();
  if (type == static_cast<int>(AttributeType::kFloat)) return Status();
  return DataLoss(fmt::format("attribute {} is no float", arg->index()));
}

constexpr ProductTensor kWritten[] = {ProductTensor::kD, ProductTensor::kBiasGradient,
                                      ProductTensor::kDAmax};

}  // namespace

bool Writable(const fb::Op& op, const fb::Arg& pointer) {
  if (pointer.kind() != static_cast<int>(ArgKind::kOperand)) return true;
  for (uint32_t i = 0; i < Count(op.results()); ++i) {
    if (op.results()->Get(i)->alias() == static_cast<int>(pointer.index())) return true;
  }
  return false;
}

Status VerifyProduct(const ProgramScope& scope, const fb::Product* product) {
  if (product == nullptr) return DataLoss("a product step without its product");
  if (Count(product->tensors()) != kTensors || Count(product->numbers()) != kNumbers ||
      Count(product->conditions()) != kConditions) {
    return DataLoss(
        fmt::format("a product of {} tensors, {} numbers, {} conditions, must have {}, {}, {}",
                    Count(product->tensors()), Count(product->numbers()),
                    Count(product->conditions()), kTensors, kNumbers, kConditions));
  }
  for (uint32_t i = 0; i < kTensors; ++i) {
    KB_VERIFY(CheckProductTensor(scope, *product->tensors()->Get(i), static_cast<ProductTensor>(i)),
              "tensor {}", i);
  }
  for (ProductTensor written : kWritten) {
    const auto place = static_cast<uint32_t>(written);
    if (Writable(scope.op, *product->tensors()->Get(place))) continue;
    return DataLoss(fmt::format("tensor {} is an operand, which must not be written", place));
  }
  constexpr auto kLastNeeded = static_cast<uint32_t>(ProductNumber::kK);
  for (uint32_t i = 0; i < kNumbers; ++i) {
    KB_VERIFY(VerifyProgram(scope, product->numbers()->Get(i), i <= kLastNeeded), "number {}", i);
  }
  for (uint32_t i = 0; i < kConditions; ++i) {
    KB_VERIFY(VerifyProgram(scope, product->conditions()->Get(i), false), "condition {}", i);
  }
  KB_VERIFY(CheckScalar(scope, product->alpha()), "alpha");
  KB_VERIFY(CheckScalar(scope, product->beta()), "beta");
  return Status();
}

}  // namespace kbundle
