// The launch only asks whether the addresses are right (addresses.h); which one is wrong, and what
// to do, is found out here, when it no longer matters how long it takes.
#include "loader/plan/addresses.h"

#include <fmt/format.h>

#include <algorithm>

#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"

namespace kbundle {

AddressRules::AddressRules(const Bundle& bundle, const PlanFacts& facts)
    : workspace_bytes_(facts.workspace_bytes),
      promise_mask_(static_cast<uintptr_t>(facts.alignment - 1)),
      aligned_mask_(static_cast<uintptr_t>(std::max(facts.alignment, kVectorAlignment) - 1)),
      unaligned_class_(facts.unaligned_class) {
  const Problem& problem = facts.problem;
  const fb::Op& op = OpOf(bundle, problem.op);
  auto add = [&](bool is_result, uint32_t index, const TensorSpec& spec, const fb::Tensor& tensor) {
    if (!spec.present || spec.elements() == 0) return;
    tensors_.push_back({is_result, index, static_cast<uintptr_t>(SizeOf(spec.dtype) - 1)});
    names_.push_back({tensor.name()->str(), ""});
    if (!is_result || tensor.alias() < 0) return;
    const auto operand = static_cast<uint32_t>(tensor.alias());
    in_out_.push_back({index, operand});
    names_.back().operand = op.operands()->Get(operand)->name()->str();
  };
  for (uint32_t i = 0; i < problem.operands.size(); ++i) {
    add(false, i, problem.operands[i], *op.operands()->Get(i));
  }
  for (uint32_t i = 0; i < problem.results.size(); ++i) {
    add(true, i, problem.results[i], *op.results()->Get(i));
  }
}

Status AddressRules::Explain(const LaunchArgs& args) const {
  if (workspace_bytes_ > 0 && !WorkspaceFits(args.workspace)) {
    return InvalidArgument(
        fmt::format("workspace is at {}, needed are {} bytes at a multiple of {}: give "
                    "plan.workspace_bytes() bytes",
                    args.workspace, workspace_bytes_, kWorkspaceAlignment));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (AddressOf(tensors_[i], args) != 0) continue;
    return InvalidArgument(
        fmt::format("{} is null, but the problem says that it is present", names_[i].tensor));
  }
  KB_RETURN_IF_ERROR(ExplainInOut(args));
  KB_RETURN_IF_ERROR(ExplainAlignment(args));
  return Internal("these addresses were refused without a reason");
}

Status AddressRules::ExplainAlignment(const LaunchArgs& args) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uintptr_t address = AddressOf(tensors_[i], args);
    if ((address & promise_mask_) != 0) {
      return InvalidArgument(fmt::format(
          "{} is at {:#x}, a multiple of {} bytes only, but the plan was made under the promise "
          "that every address is a multiple of {}: align it, or make the plan for less",
          names_[i].tensor, address, address & -address, promise_mask_ + 1));
    }
    const uintptr_t needed =
        unaligned_class_ >= 0 ? tensors_[i].element_mask + 1 : uintptr_t{kVectorAlignment};
    if (address % needed == 0) continue;
    return InvalidArgument(fmt::format(
        "{} is at {:#x}, not a multiple of {} bytes, which {} needs: align it, or copy it first",
        names_[i].tensor, address, needed,
        unaligned_class_ >= 0 ? "its element type" : "every variant that is legal here"));
  }
  return Status();
}

Status AddressRules::ExplainInOut(const LaunchArgs& args) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    for (const InOut& pair : in_out_) {
      if (!tensors_[i].is_result || tensors_[i].index != pair.result) continue;
      const void *result = args.results[pair.result], *operand = args.operands[pair.operand];
      if (result == operand) continue;
      return InvalidArgument(fmt::format(
          "result {} is at {}, but it is written over operand {} at {}: give both the same address",
          names_[i].tensor, result, names_[i].operand, operand));
    }
  }
  return Status();
}

}  // namespace kbundle
