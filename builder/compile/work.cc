#include "builder/compile/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "builder/manifest/manifest.h"
#include "builder/provider/cudnn/request.h"
#include "builder/provider/triton/request.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

// Splits -I flags off; relative folders are relative to the manifest.
void AddFlags(const Template& variant, const Family& family, Unit* unit) {
  for (size_t i = 0; i < variant.flags.size(); ++i) {
    std::string folder = variant.flags[i];
    if (!folder.starts_with("-I")) {
      unit->flags.push_back(folder);
      continue;
    }
    folder = folder.substr(2);
    if (folder.empty() && i + 1 < variant.flags.size()) folder = variant.flags[++i];
    unit->include_folders.push_back(
        std::filesystem::absolute(std::filesystem::path(family.directory) / folder)
            .lexically_normal()
            .string());
  }
}

void AddOnce(const std::string& name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

bool Serves(const Template& variant, const Target& target) {
  const bool host = target.kind == TargetKind::kHost;
  if (host != (variant.provider == Provider::kHost)) return false;
  if (target.kind == TargetKind::kCudaPortable) return variant.portable;
  if (variant.provider == Provider::kTriton && !TritonMakes(target)) return false;
  const bool exact =
      variant.provider == Provider::kCudnn || variant.provider == Provider::kCublasLt;
  if (exact && target.kind != TargetKind::kCuda) return false;
  return variant.targets.empty() || std::find(variant.targets.begin(), variant.targets.end(),
                                              target.ToString()) != variant.targets.end();
}

Status CheckTargetNames(const Op& op, const Template& variant) {
  for (const std::string& name : variant.targets) {
    Result<Target> target = Target::Parse(name);
    if (!target.ok()) {
      return std::move(target).status().Annotate(
          fmt::format("variant {}/{}: targets", op.name, variant.name));
    }
  }
  return Status();
}

class Planner {
 public:
  Planner(Work* work, const std::vector<Provider>& providers)
      : work_(*work), providers_(providers) {}

  Status AddOp(uint32_t op_index) {
    const Op& op = *work_.ops[op_index].op;
    uint32_t rank = 0;
    for (uint32_t t = 0; t < op.templates.size(); ++t) {
      const Template& variant = op.templates[t];
      for (uint32_t target = 0; target < work_.targets.size() && Wanted(variant); ++target) {
        if (Serves(variant, work_.targets[target])) {
          KB_RETURN_IF_ERROR(AddTemplate(op_index, t, target, rank));
        } else {
          NoteLeftOut(op, variant, work_.targets[target]);
        }
      }
      rank += static_cast<uint32_t>(variant.points.size());
    }
    return Status();
  }

 private:
  bool Wanted(const Template& variant) const {
    return providers_.empty() ||
           std::find(providers_.begin(), providers_.end(), variant.provider) != providers_.end();
  }

  // Code for exactly sm_100a must not stand in the bundle as code for sm_100f.
  void NoteLeftOut(const Op& op, const Template& variant, const Target& target) {
    if (variant.provider != Provider::kTriton || !variant.targets.empty()) return;
    const std::string made = TritonWouldMake(target);
    if (made.empty()) return;
    work_.notes.push_back(
        fmt::format("leave {}/{} out of {}: Triton makes {}; for that GPU add it "
                    "to --target",
                    op.name, variant.name, target.ToString(), made));
  }

  Status AddTemplate(uint32_t op_index, uint32_t t, uint32_t target, uint32_t first_rank) {
    const Template& variant = work_.ops[op_index].op->templates[t];
    const bool portable = work_.targets[target].kind == TargetKind::kCudaPortable;
    std::set<std::vector<DType>> seen;
    for (uint32_t p = 0; p < variant.points.size(); ++p) {
      // Portable code is for compatibility, not speed: the first point of each type is enough.
      if (portable && !seen.insert(variant.points[p].types).second) continue;
      const std::string& only = variant.points[p].target;
      if (!only.empty() && only != work_.targets[target].ToString()) continue;
      KB_ASSIGN_OR_RETURN(VariantUse use, Use(op_index, t, p, target, first_rank + p));
      work_.variants.push_back(std::move(use));
    }
    return Status();
  }

  Result<VariantUse> Use(uint32_t op_index, uint32_t t, uint32_t p, uint32_t target,
                         uint32_t rank) {
    const Op& op = *work_.ops[op_index].op;
    const Template& variant = op.templates[t];
    VariantUse use{op_index, t, p, target, rank, {}, {}};
    std::vector<std::string> kernels;
    for (const Step& step : variant.steps) {
      const bool plan = step.kind == StepKind::kExecutionPlan;
      const bool product = step.kind == StepKind::kProduct;
      use.kernels.push_back(step.kind == StepKind::kKernel
                                ? SubstituteKernel(op, variant, variant.points[p], step.kernel)
                                : (plan ? step.kernel : (product ? kAlgorithmKernel : "")));
      if (step.kind == StepKind::kKernel || product) AddOnce(use.kernels.back(), &kernels);
    }
    if (variant.provider == Provider::kTriton || variant.provider == Provider::kCudnn) {
      KB_RETURN_IF_ERROR(AddStepUnits(&use));
    } else if (variant.provider == Provider::kCublasLt) {
      AddProductUnits(&use);
    } else {
      const uint32_t unit = UnitFor(use, std::move(kernels));
      for (const std::string& kernel : use.kernels) {
        use.units.push_back(kernel.empty() ? kNoUnit : unit);
      }
    }
    return use;
  }

  // Of providers that make one step at a time.
  Status AddStepUnits(VariantUse* use) {
    const Op& op = *work_.ops[use->op].op;
    const Template& variant = op.templates[use->template_index];
    const Template::Point& point = variant.points[use->point];
    const std::string id = VariantLabel(op, variant, point, work_.targets[use->target]);
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      use->units.push_back(kNoUnit);
      const bool plan = variant.steps[i].kind == StepKind::kExecutionPlan;
      if (variant.steps[i].kind != StepKind::kKernel && !plan) continue;
      if (!plan && variant.provider == Provider::kCudnn) {
        use->units[i] = KernelUnit(*use, i);
        continue;
      }
      Unit unit;
      unit.compiler = plan ? Unit::Compiler::kCudnn : Unit::Compiler::kTriton;
      unit.target = work_.targets[use->target];
      unit.family = work_.ops[use->op].family;
      unit.source = plan ? "" : variant.source;
      unit.step = &variant.steps[i];
      unit.label = variant.steps.size() == 1 ? id : fmt::format("{} step {}", id, i + 1);
      const auto request = plan ? GraphRequest : TritonRequest;
      KB_ASSIGN_OR_RETURN(unit.extra_options,
                          request(op, variant, point, variant.steps[i], unit.target));
      use->units[i] = Intern(std::move(unit), {use->kernels[i]});
      work_.units[use->units[i]].kernels = {use->kernels[i]};
    }
    return Status();
  }

  void AddProductUnits(VariantUse* use) {
    const Template& variant = work_.ops[use->op].op->templates[use->template_index];
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      const StepKind kind = variant.steps[i].kind;
      use->units.push_back(kind == StepKind::kKernel    ? KernelUnit(*use, i)
                           : kind == StepKind::kProduct ? UnitFor(*use, {kAlgorithmKernel})
                                                        : kNoUnit);
    }
  }

  // Of a kernel beside a library's step. All points share it.
  uint32_t KernelUnit(const VariantUse& use, size_t step) {
    const Op& op = *work_.ops[use.op].op;
    const Template& variant = op.templates[use.template_index];
    Unit unit;
    unit.target = work_.targets[use.target];
    unit.family = work_.ops[use.op].family;
    unit.source = variant.source;
    unit.label = fmt::format("{}/{} {}@{}", op.name, variant.name, use.kernels[step],
                             unit.target.ToString());
    const uint32_t index = Intern(std::move(unit), {use.kernels[step]});
    work_.units[index].kernels = {use.kernels[step]};
    return index;
  }

  uint32_t UnitFor(const VariantUse& use, std::vector<std::string> kernels) {
    const Op& op = *work_.ops[use.op].op;
    const Template& variant = op.templates[use.template_index];
    const Template::Point& point = variant.points[use.point];
    Unit unit;
    unit.target = work_.targets[use.target];
    unit.family = work_.ops[use.op].family;
    unit.source = variant.source;
    unit.label = VariantLabel(op, variant, point, unit.target);
    AddFlags(variant, *unit.family, &unit);
    bool collects = false;  // further variants add kernels to it
    if (variant.provider == Provider::kHost) {
      unit.compiler = Unit::Compiler::kHost;
      unit.label = fmt::format("{}/{}@{}", unit.family->name, unit.source, unit.target.ToString());
      collects = true;
    } else if (variant.provider == Provider::kCublasLt) {
      unit.compiler = Unit::Compiler::kAlgorithm;
      unit.source.clear();  // that of the kernels beside it
      unit.extra_options = point.algorithm;
    } else if (variant.compiler == "nvcc") {
      unit.compiler = Unit::Compiler::kNvcc;
      AddMacros(op, variant, point, &unit);
    } else if (unit.portable()) {
      unit.label = fmt::format("{}/{}@portable", op.name, variant.name);
      unit.extra_options = op.name;
      collects = true;
    }
    const uint32_t index = Intern(std::move(unit), collects ? std::vector<std::string>() : kernels);
    for (const std::string& kernel : kernels) AddOnce(kernel, &work_.units[index].kernels);
    return index;
  }

  static void AddMacros(const Op& op, const Template& variant, const Template::Point& point,
                        Unit* unit) {
    for (size_t i = 0; i < op.types.size(); ++i) {
      unit->macros.emplace_back("KB_" + op.types[i].name, CudaTypeName(point.types[i]));
    }
    for (size_t i = 0; i < variant.tunables.size(); ++i) {
      unit->macros.emplace_back("KB_" + variant.tunables[i], std::to_string(point.tunables[i]));
    }
  }

  uint32_t Intern(Unit unit, const std::vector<std::string>& kernels) {
    KeyWriter key;
    key.Text(unit.family->directory).Text(unit.source).Text(unit.target.ToString());
    key.U8(static_cast<uint8_t>(unit.compiler)).Text(unit.extra_options);
    const std::vector<std::string>* const lists[] = {&unit.flags, &unit.include_folders, &kernels};
    for (const std::vector<std::string>* list : lists) {
      key.U64(list->size());
      for (const std::string& text : *list) key.Text(text);
    }
    for (const auto& [name, value] : unit.macros) key.Text(name).Text(value);
    const auto [found, fresh] =
        interned_.try_emplace(key.bytes(), static_cast<uint32_t>(work_.units.size()));
    if (fresh) work_.units.push_back(std::move(unit));
    return found->second;
  }

  Work& work_;
  const std::vector<Provider>& providers_;
  std::map<std::string, uint32_t> interned_;
};

// A target without variants is not in the bundle: `verify` then says that nothing is there for it.
void DropUnusedTargets(Work* work) {
  std::vector<uint32_t> moved(work->targets.size(), 0);
  for (const VariantUse& use : work->variants) moved[use.target] = 1;
  std::vector<Target> kept;
  for (size_t i = 0; i < moved.size(); ++i) {
    const bool used = moved[i] != 0;
    moved[i] = static_cast<uint32_t>(kept.size());
    if (used) kept.push_back(work->targets[i]);
  }
  work->targets = std::move(kept);
  for (VariantUse& use : work->variants) use.target = moved[use.target];
}

}  // namespace

std::string VariantLabel(const Op& op, const Template& variant, const Template::Point& point,
                         const Target& target) {
  std::string inside;
  for (size_t i = 0; i < op.types.size(); ++i) {
    inside +=
        fmt::format("{}{}={}", inside.empty() ? "" : ",", op.types[i].name, Name(point.types[i]));
  }
  for (size_t i = 0; i < variant.tunables.size(); ++i) {
    inside +=
        fmt::format("{}{}={}", inside.empty() ? "" : ",", variant.tunables[i], point.tunables[i]);
  }
  return fmt::format("{}/{}{}@{}", op.name, variant.name, inside.empty() ? "" : "[" + inside + "]",
                     target.ToString());
}

Result<Work> PlanWork(const std::vector<Family>& families, const std::vector<Target>& targets,
                      const std::vector<Provider>& providers) {
  Work work;
  work.targets = targets;
  const auto by_name = [](const Target& a, const Target& b) { return a.ToString() < b.ToString(); };
  std::sort(work.targets.begin(), work.targets.end(), by_name);
  const auto same = [](const Target& a, const Target& b) { return a.ToString() == b.ToString(); };
  work.targets.erase(std::unique(work.targets.begin(), work.targets.end(), same),
                     work.targets.end());
  for (const Family& family : families) {
    for (const Op& op : family.ops) {
      for (const Template& variant : op.templates)
        KB_RETURN_IF_ERROR(CheckTargetNames(op, variant));
      work.ops.push_back({&family, &op});
    }
  }
  std::sort(work.ops.begin(), work.ops.end(),
            [](const auto& a, const auto& b) { return a.op->name < b.op->name; });
  for (size_t i = 1; i < work.ops.size(); ++i) {
    if (work.ops[i - 1].op->name != work.ops[i].op->name) continue;
    return InvalidArgument(fmt::format(
        "op '{}' is defined in {} and again in {}; rename one family", work.ops[i].op->name,
        work.ops[i - 1].family->manifest_path, work.ops[i].family->manifest_path));
  }
  Planner planner(&work, providers);
  for (uint32_t i = 0; i < work.ops.size(); ++i) KB_RETURN_IF_ERROR(planner.AddOp(i));
  DropUnusedTargets(&work);
  return work;
}

}  // namespace kbundle::builder
