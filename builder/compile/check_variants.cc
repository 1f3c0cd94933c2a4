// One mistake in a manifest is a mistake at every grid point of every type and target: findings are
// gathered under their place and kind, the first is told in full, and the rest are a number.
#include "builder/compile/check_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "builder/compile/c_type.h"
#include "builder/compile/check_arguments.h"
#include "builder/compile/check_launch.h"
#include "builder/support/diagnostic.h"

namespace kbundle::builder {
namespace {

class VariantChecks {
 public:
  VariantChecks(const Work& work, const std::vector<Object>& objects,
                const std::vector<ParameterTypes>& types)
      : work_(work), objects_(objects), types_(types) {}

  std::vector<Misfit> Run() {
    for (const VariantUse& use : work_.variants) Check(use);
    return std::move(misfits_);
  }

 private:
  void Check(const VariantUse& use) {
    const Op& op = *work_.ops[use.op].op;
    const Template& variant = op.templates[use.template_index];
    std::vector<StepKernel> steps;
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      StepKernel step{&variant.steps[i], nullptr, {}};
      if (variant.steps[i].kind == StepKind::kKernel) {
        step.kernel = KernelOf(use, i);
        if (step.kernel != nullptr) step.types = TypesOf(use.units[i], *step.kernel);
        CheckKernel(use, i, step.kernel);
      }
      steps.push_back(std::move(step));
    }
    for (Finding& finding : CheckArguments(op, variant, variant.points[use.point], steps)) {
      Add(use, std::move(finding), "arguments");
    }
    for (Finding& finding :
         CheckLaunches(op, variant, variant.points[use.point], work_.targets[use.target], steps)) {
      Add(use, std::move(finding), "launch");
    }
  }

  const KernelInfo* KernelOf(const VariantUse& use, size_t step) const {
    const std::vector<KernelInfo>& kernels = objects_[use.units[step]].kernels;
    const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const KernelInfo& info) {
      return info.kernel == use.kernels[step];
    });
    return found == kernels.end() ? nullptr : &*found;
  }

  std::optional<std::vector<std::string>> TypesOf(uint32_t unit, const KernelInfo& kernel) const {
    if (types_[unit].empty()) return TypesOfSymbol(kernel.symbol);
    const auto found = types_[unit].find(kernel.symbol);
    if (found == types_[unit].end()) return std::nullopt;
    return found->second;
  }

  void CheckKernel(const VariantUse& use, size_t step, const KernelInfo* kernel) {
    const Template& variant = work_.ops[use.op].op->templates[use.template_index];
    const SourceSpan& where = variant.steps[step].where;
    if (kernel == nullptr) {
      return Add(use, {where, fmt::format("kernel '{}' is missing", use.kernels[step]), ""}, "");
    }
    if (kernel->spill_bytes <= static_cast<uint64_t>(variant.max_spill)) return;
    const std::string message =
        fmt::format("kernel '{}' spills {} bytes of registers ({} registers used), {} allowed",
                    use.kernels[step], kernel->spill_bytes, kernel->registers, variant.max_spill);
    Add(use, {where, message, "make it smaller, or set max_spill"}, message);
  }

  // kind: what two findings at one place have in common when they are told as one.
  void Add(const VariantUse& use, Finding finding, const std::string& kind) {
    const Op& op = *work_.ops[use.op].op;
    const Template& variant = op.templates[use.template_index];
    const std::string& path = work_.ops[use.op].family->manifest_path;
    const SourceSpan& where = finding.where.line > 0 ? finding.where : variant.where;
    const auto [place, fresh] =
        seen_.try_emplace({path, where.file, where.line, where.column, kind}, misfits_.size());
    if (!fresh) {
      ++misfits_[place->second].others;
      return;
    }
    Diagnostics diagnostics = DiagnosticsOf(work_.ops[use.op].family->sources);
    diagnostics.Error(where, std::move(finding.message), std::move(finding.note));
    misfits_.push_back(
        {diagnostics.ToStatus().message(),
         VariantLabel(op, variant, variant.points[use.point], work_.targets[use.target])});
  }

  const Work& work_;
  const std::vector<Object>& objects_;
  const std::vector<ParameterTypes>& types_;
  std::vector<Misfit> misfits_;
  std::map<std::tuple<std::string, int, int, int, std::string>, size_t> seen_;  // to misfits_
};

}  // namespace

std::vector<Misfit> CheckVariants(const Work& work, const std::vector<Object>& objects,
                                  const std::vector<ParameterTypes>& types) {
  return VariantChecks(work, objects, types).Run();
}

std::optional<size_t> RefusedStep(const VariantUse& use, const std::vector<Object>& objects) {
  for (size_t step = 0; step < use.units.size(); ++step) {
    const uint32_t unit = use.units[step];
    if (unit != kNoUnit && objects[unit].code.empty()) return step;
  }
  return std::nullopt;
}

}  // namespace kbundle::builder
