// The order of everything here reaches the bundle's bytes: targets and ops are sorted, variants
// come in the manifest's order, and units are interned by all that they are told, in the order in
// which they are first met. The order of paths on the command line changes none of it.
#include "builder/compile/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "builder/provider/provider.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

template <typename T>
void AddOnce(const T& one, std::vector<T>* all) {
  if (std::find(all->begin(), all->end(), one) == all->end()) all->push_back(one);
}

bool Serves(const Template& variant, const Target& target) {
  if (!variant.provider->MakesCodeFor(target)) return false;
  if (target.kind == TargetKind::kCudaPortable) return variant.portable;
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
  Planner(Work* work, const std::vector<const Provider*>& providers)
      : work_(*work), units_(work), providers_(providers) {}

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

  void NoteLeftOut(const Op& op, const Template& variant, const Target& target) {
    if (!variant.targets.empty()) return;
    const std::string why = variant.provider->WhyLeftOut(target);
    if (why.empty()) return;
    work_.notes.push_back(
        fmt::format("leave {}/{} out of {}: {}", op.name, variant.name, target.ToString(), why));
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
    for (const Step& step : variant.steps) {
      const bool memory = step.kind == StepKind::kMemset || step.kind == StepKind::kCopy;
      use.kernels.push_back(
          memory ? "" : variant.provider->KernelName(op, variant, variant.points[p], step));
    }
    KB_RETURN_IF_ERROR(variant.provider->AddUnits(&units_, &use));
    return use;
  }

  Work& work_;
  UnitSet units_;
  const std::vector<const Provider*>& providers_;
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

void AddSourceAndFlags(const Template& variant, const Family& family, Unit* unit) {
  unit->source = variant.source;
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

Unit UnitSet::New(const VariantUse& use) const {
  Unit unit;
  unit.target = work_.targets[use.target];
  unit.family = &family(use);
  unit.label = VariantLabel(op(use), variant(use), point(use), unit.target);
  return unit;
}

uint32_t UnitSet::Add(Unit unit, const std::vector<std::string>& kernels, bool collects) {
  KeyWriter key;
  key.Text(unit.family->directory).Text(unit.source).Text(unit.target.ToString());
  key.Text(unit.compiler).Text(unit.extra_options);
  const std::vector<std::string> own = collects ? std::vector<std::string>() : kernels;
  for (const auto* list :
       {&std::as_const(unit).flags, &std::as_const(unit).include_folders, &own}) {
    key.U64(list->size());
    for (const std::string& text : *list) key.Text(text);
  }
  for (const auto& [name, value] : unit.macros) key.Text(name).Text(value);
  const auto [found, fresh] =
      interned_.try_emplace(key.bytes(), static_cast<uint32_t>(work_.units.size()));
  const std::vector<StructCheck> checks = std::exchange(unit.struct_checks, {});
  if (fresh) work_.units.push_back(std::move(unit));
  Unit& made = work_.units[found->second];
  for (const std::string& kernel : kernels) AddOnce(kernel, &made.kernels);
  for (const StructCheck& check : checks) AddOnce(check, &made.struct_checks);
  return found->second;
}

Status UnitSet::AddForEachStep(VariantUse* use,
                               const std::function<Status(const Step&, Unit*)>& fill) {
  const std::vector<Step>& steps = variant(*use).steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    use->units.push_back(kNoUnit);
    if (use->kernels[i].empty()) continue;
    Unit unit = New(*use);
    unit.source = steps[i].kernel_source.empty() ? variant(*use).source : steps[i].kernel_source;
    unit.step = &steps[i];
    if (steps.size() > 1) unit.label += fmt::format(" step {}", i + 1);
    KB_RETURN_IF_ERROR(fill(steps[i], &unit));
    use->units[i] = Add(std::move(unit), {use->kernels[i]});
  }
  return Status();
}

void UnitSet::AddForAllSteps(const Unit& unit, bool collects, VariantUse* use) {
  const std::vector<Step>& steps = variant(*use).steps;
  use->units.assign(steps.size(), kNoUnit);
  for (size_t first = 0; first < steps.size(); ++first) {
    if (use->kernels[first].empty() || use->units[first] != kNoUnit) continue;
    const std::string& source = steps[first].kernel_source;
    Unit made = unit;
    if (!source.empty()) {
      made.source = source;
      made.label += " " + source;
    }
    std::vector<size_t> together;
    std::vector<std::string> kernels;
    for (size_t i = first; i < steps.size(); ++i) {
      if (use->kernels[i].empty() || steps[i].kernel_source != source) continue;
      together.push_back(i);
      AddOnce(use->kernels[i], &kernels);
      const auto checks = StructChecks(op(*use), variant(*use), point(*use), {&steps[i], 1});
      for (const StructCheck& check : checks) AddOnce(check, &made.struct_checks);
    }
    const uint32_t number = Add(std::move(made), kernels, collects);
    for (const size_t i : together) use->units[i] = number;
  }
}

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
                      const std::vector<const Provider*>& providers) {
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
