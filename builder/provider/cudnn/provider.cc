// Provider cudnn: a unit per execution plan, and one per kernel beside it.
#include "builder/provider/provider.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "builder/compile/compile.h"
#include "builder/provider/cuda/kernels.h"
#include "builder/provider/cudnn/compile.h"
#include "builder/provider/cudnn/find.h"
#include "builder/provider/cudnn/manifest.h"
#include "builder/provider/cudnn/points.h"
#include "builder/provider/cudnn/request.h"
#include "kbundle/provider/cudnn.h"

namespace kbundle::builder {
namespace {

class CudnnPlanning : public Compiler {
 public:
  std::string_view name() const override { return "cudnn"; }
  uint8_t number() const override { return 4; }
  Sources sources() const override { return Sources::kCuda; }

  Status Find(const std::vector<const Unit*>& units, const std::string& /*python*/,
              Toolchain* tools) override {
    std::set<int64_t> versions;
    for (const Unit* unit : units) versions.insert(VersionOf(*unit));
    KB_ASSIGN_OR_RETURN(CudnnLibraries found, CudnnLibraries::Find(*tools, versions));
    libraries_ = std::make_unique<const CudnnLibraries>(std::move(found));
    return Status();
  }

  std::vector<std::string> Options(const Unit& unit) const override {
    return {unit.extra_options, kExecutionPlanMagic};
  }
  Result<Sha256Digest> Identity(const Unit& unit, const Toolchain& /*tools*/,
                                ToolDigests* digests) const override {
    return digests->Of(libraries_->PartsOf(VersionOf(unit)));
  }
  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& /*tree*/,
                         const std::string& /*key*/, const CompileContext& context) const override {
    return CompileWithCudnn(unit, *libraries_, context.limit);
  }
  std::vector<std::string> Variables() const override {
    return {"KBUNDLE_CUDNN", "KBUNDLE_CUDA_ROOT", "VIRTUAL_ENV"};
  }

 private:
  static int64_t VersionOf(const Unit& unit) {
    return nlohmann::json::parse(unit.extra_options).at("cudnn").get<int64_t>();
  }

  std::unique_ptr<const CudnnLibraries> libraries_;
};

class Cudnn : public Provider {
 public:
  std::string_view name() const override { return "cudnn"; }
  bool MakesCodeFor(const Target& target) const override {
    return target.kind == TargetKind::kCuda;
  }
  std::string TargetsInWords() const override {
    return "an execution plan is for one GPU, as in \"sm_90a\"";
  }

  void ReadVariantKeys(VariantTable& table) const override { ReadPlanKeys(table); }
  void ReadPoints(VariantTable& /*table*/) const override {}  // they follow from problems
  void ReadKernelStep(StepTable& table) const override { ReadGpuLaunch(table); }
  bool TakesStructs() const override { return true; }
  std::string_view OwnStepKey() const override { return "graph"; }
  void ReadOwnStep(StepTable& table) const override { ReadGraph(table); }
  void FinishVariant(VariantTable& table) const override { TieToProblems(table.op, table.variant); }
  void SetProblemPoints(const Op& op, Template* variant) const override {
    SetPlanPoints(op, variant);
  }

  std::string KernelName(const Op& op, const Template& variant, const Template::Point& point,
                         const Step& step) const override {
    if (step.kind == StepKind::kOwn) return step.kernel;
    return CudaKernelName(op, variant, point, step.kernel);
  }

  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    const Template& variant = units->variant(*use);
    return AddUnitsWithKernels(units, use, [&](size_t step) -> Result<uint32_t> {
      Unit unit = units->New(*use);
      unit.compiler = "cudnn";
      unit.format = ObjectFormat::kExecutionPlan;
      unit.step = &variant.steps[step];
      if (variant.steps.size() > 1) unit.label += fmt::format(" step {}", step + 1);
      KB_ASSIGN_OR_RETURN(unit.extra_options,
                          GraphRequest(units->op(*use), variant, units->point(*use),
                                       variant.steps[step], unit.target));
      return units->Add(std::move(unit), {use->kernels[step]});
    });
  }

  int own_step_number() const override { return 4; }
  void AddLooks(std::vector<Look>* looks) const override {
    looks->push_back({Look::For::kVariants, "cudnn", LookForCudnn});
  }
  void LoadLibraries(const Toolchain& tools) const override { LoadCudnn(tools); }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(std::make_unique<CudnnPlanning>());
  }
};

}  // namespace

const Provider* CudnnProvider() {
  static const Cudnn cudnn;
  return &cudnn;
}

}  // namespace kbundle::builder
