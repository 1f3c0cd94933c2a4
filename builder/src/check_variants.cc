#include "check_variants.h"

#include <fmt/format.h>

#include <algorithm>

namespace kbundle::builder {
namespace {

Status CheckStep(const Step& step, const std::string& name, const Template& variant,
                 const Object& object) {
  const auto kernel = std::find_if(object.kernels.begin(), object.kernels.end(),
                                   [&](const KernelInfo& info) { return info.kernel == name; });
  if (kernel == object.kernels.end()) return NotFound(fmt::format("kernel '{}' is missing", name));
  KB_RETURN_IF_ERROR(CheckParams(*kernel, step));
  if (kernel->spill_bytes <= static_cast<uint64_t>(variant.max_spill)) return Status();
  return InvalidArgument(fmt::format(
      "kernel '{}' spills {} bytes of registers ({} registers used), {} allowed; make it smaller, "
      "or set max_spill",
      name, kernel->spill_bytes, kernel->registers, variant.max_spill));
}

}  // namespace

Status CheckVariant(const Work& work, const VariantUse& use, const std::vector<Object>& objects) {
  const Op& op = *work.ops[use.op].op;
  const Template& variant = op.templates[use.template_index];
  for (size_t i = 0; i < variant.steps.size(); ++i) {
    if (variant.steps[i].kind != StepKind::kKernel) continue;
    Status status = CheckStep(variant.steps[i], use.kernels[i], variant, objects[use.units[i]]);
    if (status.ok()) continue;
    const SourceSpan& where =
        variant.steps[i].where.line > 0 ? variant.steps[i].where : variant.where;
    return std::move(status).Annotate(fmt::format(
        "{}:{}:{}: variant {}, step {}", work.ops[use.op].family->manifest_path, where.line,
        where.column,
        VariantLabel(op, variant, variant.points[use.point], work.targets[use.target]), i + 1));
  }
  return Status();
}

std::optional<size_t> RefusedStep(const VariantUse& use, const std::vector<Object>& objects) {
  for (size_t step = 0; step < use.units.size(); ++step) {
    const uint32_t unit = use.units[step];
    if (unit != kNoUnit && objects[unit].code.empty()) return step;
  }
  return std::nullopt;
}

}  // namespace kbundle::builder
