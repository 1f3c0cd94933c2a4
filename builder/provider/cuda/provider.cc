// Provider cuda: a unit per set of kernels that a variant's steps launch out of one source (NVRTC),
// per grid point (nvcc, since macros carry types and tunables), or per op and source (portable: all
// kernels as PTX).
#include "builder/provider/provider.h"

#include <fmt/format.h>

#include <span>

#include "builder/manifest/tables.h"
#include "builder/model/kernel_name.h"
#include "builder/provider/cuda/compilers.h"
#include "builder/provider/cuda/kernels.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kMostSpill = 1 << 20;

void AddMacros(const Op& op, const Template& variant, const Template::Point& point, Unit* unit) {
  for (size_t i = 0; i < op.types.size(); ++i) {
    unit->macros.emplace_back("KB_" + op.types[i].name, CudaTypeName(point.types[i]));
  }
  for (size_t i = 0; i < variant.tunables.size(); ++i) {
    unit->macros.emplace_back("KB_" + variant.tunables[i], std::to_string(point.tunables[i]));
  }
}

class Cuda : public Provider {
 public:
  std::string_view name() const override { return "cuda"; }
  bool MakesCodeFor(const Target& target) const override {
    return target.kind != TargetKind::kHost;
  }
  std::string TargetsInWords() const override {
    return "cuda targets: sm_80, sm_90a, sm_100f and their like";
  }

  void ReadVariantKeys(VariantTable& table) const override {
    ReadSource(table, /*required=*/true);
    table.variant.compiler =
        table.fields.TakeWord("compiler", {"nvrtc", "nvcc"}) == 1 ? "nvcc" : "nvrtc";
    table.variant.portable = table.fields.TakeBool("portable");
    table.variant.max_spill = table.fields.TakeInteger("max_spill", 0, 0, kMostSpill);
    ReadFlags(table);
    ReadTargets(table);
  }
  void ReadPoints(VariantTable& table) const override { ReadGrid(table); }
  void ReadKernelStep(StepTable& table) const override {
    ReadGpuLaunch(table);
    ReadStepSource(table);
  }

  bool TakesTensorMaps() const override { return true; }
  bool TakesStructs() const override { return true; }

  std::string KernelName(const Op& op, const Template& variant, const Template::Point& point,
                         const Step& step) const override {
    return CudaKernelName(op, variant, point, step.kernel);
  }

  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    const Op& op = units->op(*use);
    const Template& variant = units->variant(*use);
    Unit unit = units->New(*use);
    AddSourceAndFlags(variant, units->family(*use), &unit);
    unit.compiler = variant.compiler;
    if (unit.portable()) unit.format = ObjectFormat::kFatbin;
    const bool collects = unit.portable() && variant.compiler != "nvcc";
    if (variant.compiler == "nvcc") {
      AddMacros(op, variant, units->point(*use), &unit);
    } else if (unit.portable()) {
      unit.label = fmt::format("{}/{}@portable", op.name, variant.name);
      unit.extra_options = op.name;
    }
    units->AddForAllSteps(unit, collects, use);
    return Status();
  }

  void AddLooks(std::vector<Look>* looks) const override { AddCudaLooks(looks); }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(MakeNvrtcCompiler());
    compilers->push_back(MakeNvccCompiler());
  }
};

}  // namespace

const Provider* CudaProvider() {
  static const Cuda cuda;
  return &cuda;
}

std::string CudaKernelName(const Op& op, const Template& variant, const Template::Point& point,
                           const std::string& kernel) {
  // nvcc kernels are extern "C": a C++ type cannot be a part of their names.
  const TypeNames types = variant.compiler == "nvcc" ? TypeNames::kPlain : TypeNames::kCpp;
  return FillIn(kernel, types, op, variant, point);
}

namespace {

uint32_t AddKernelBeside(size_t step, const VariantUse& use, UnitSet* units) {
  const std::string& kernel = use.kernels[step];
  Unit unit = units->New(use);
  unit.compiler = "nvrtc";
  unit.source = units->variant(use).source;
  unit.label = fmt::format("{}/{} {}@{}", units->op(use).name, units->variant(use).name, kernel,
                           unit.target.ToString());
  unit.struct_checks = StructChecks(units->op(use), units->variant(use), units->point(use),
                                    std::span(&units->variant(use).steps[step], 1));
  return units->Add(std::move(unit), {kernel});
}

}  // namespace

Status AddUnitsWithKernels(UnitSet* units, VariantUse* use,
                           const std::function<Result<uint32_t>(size_t step)>& own) {
  const std::vector<Step>& steps = units->variant(*use).steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    use->units.push_back(kNoUnit);
    if (use->kernels[i].empty()) continue;
    if (steps[i].kind == StepKind::kKernel) {
      use->units[i] = AddKernelBeside(i, *use, units);
    } else {
      KB_ASSIGN_OR_RETURN(use->units[i], own(i));
    }
  }
  return Status();
}

}  // namespace kbundle::builder
