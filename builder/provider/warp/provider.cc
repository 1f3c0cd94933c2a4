// Provider warp: a unit per kernel, for GPUs and CPUs from the same source.
#include "builder/provider/provider.h"

#include <fmt/format.h>

#include <algorithm>

#include "builder/compile/compile.h"
#include "builder/manifest/tables.h"
#include "builder/model/kernel_name.h"
#include "builder/provider/warp/compile.h"
#include "builder/provider/warp/kernel.h"
#include "builder/provider/warp/manifest.h"
#include "builder/provider/warp/python.h"
#include "builder/provider/warp/request.h"
#include "builder/tools/finding.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr int kOldestGpu = 75;  // of the CUDA toolkit inside Warp 1.19

class WarpCompiler : public Compiler {
 public:
  std::string_view name() const override { return "warp"; }
  uint8_t number() const override { return 6; }
  Sources sources() const override { return Sources::kPython; }

  Status Find(const std::vector<const Unit*>& units, const std::string& python,
              Toolchain* tools) override {
    package_ = WarpPackage();
    found_ = FindPackage(package_, python);
    KB_RETURN_IF_ERROR(found_.Need(package_));
    workers_ = std::make_unique<PythonWorkers>(PythonProgram{
        "Warp",
        found_.python,
        package_.script,
        {"CUDA_VISIBLE_DEVICES=", "PYTHONHASHSEED=0", "WARP_CACHE_PATH={home}/cache"}});
    const bool host = std::any_of(units.begin(), units.end(), [](const Unit* unit) {
      return unit->format == ObjectFormat::kHostObject;
    });
    if (!host) return Status();
    KB_RETURN_IF_ERROR(tools->NeedHostCompiler());  // which links
    tools->FindHostParts();
    return Status();
  }

  std::vector<std::string> Options(const Unit& unit) const override { return {unit.extra_options}; }

  Result<Sha256Digest> Identity(const Unit& unit, const Toolchain& tools,
                                ToolDigests* digests) const override {
    KB_ASSIGN_OR_RETURN(const Sha256Digest warp, found_.Identity(package_, digests));
    if (unit.format != ObjectFormat::kHostObject) return warp;
    KB_ASSIGN_OR_RETURN(const Sha256Digest linker, digests->Of(tools.host_parts));
    const std::string both = KeyWriter().Text(ToHex(warp)).Text(ToHex(linker)).bytes();
    return Sha256Of(both.data(), both.size());
  }

  // Warp's own files are in its digest.
  std::vector<std::string> ModuleFiles(const std::string& module) const override {
    return module == "warp" ? std::vector<std::string>() : found_.FilesOfModule(module);
  }

  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                         const std::string& /*key*/, const CompileContext& context) const override {
    return CompileWithWarp(unit, tree, context, workers_.get());
  }

  std::vector<std::string> Variables() const override {
    return {"KBUNDLE_PYTHON", "VIRTUAL_ENV", "PATH", "KBUNDLE_CXX"};
  }
  Result<std::optional<std::pair<std::string, std::string>>> Provenance(
      const Toolchain& /*tools*/, ToolDigests* /*digests*/) const override {
    return std::optional(std::pair(std::string("warp"), found_.VersionAndDigest()));
  }

 private:
  PythonPackage package_;
  FoundPackage found_;
  std::unique_ptr<PythonWorkers> workers_;
};

class Warp : public Provider {
 public:
  std::string_view name() const override { return "warp"; }
  bool MakesCodeFor(const Target& target) const override {
    if (target.kind == TargetKind::kHost) return !target.IsArm();
    return target.kind == TargetKind::kCuda && target.major * 10 + target.minor >= kOldestGpu;
  }
  std::string TargetsInWords() const override {
    return "Warp makes code for sm_75 and later GPUs, and for x86-64-v2, x86-64-v3, x86-64-v4";
  }

  void ReadVariantKeys(VariantTable& table) const override {
    ReadSource(table, /*required=*/true);
    table.variant.compiler = "warp";
    table.fields.Refuse("compiler", "only cuda variants choose a compiler", "this one has Warp");
    table.fields.Refuse("portable", "only a cuda variant can be portable",
                        "Warp makes code for the GPUs that `--target` names");
    table.fields.Refuse("flags", "a variant of Warp has no compiler flags",
                        "options of Warp are set in the source, by wp.set_module_options");
    table.fields.Refuse("max_spill", "Warp does not say how many registers a kernel spills");
    ReadTargets(table);
  }
  void ReadPoints(VariantTable& table) const override { ReadGrid(table); }
  void ReadKernelStep(StepTable& table) const override { ReadWarpLaunch(table); }
  bool ReadsArguments() const override { return true; }
  void FinishKernelStep(StepTable& table) const override { ReadWarpArguments(table); }
  void FinishVariant(VariantTable& table) const override { CheckWarpGradients(table); }

  std::string KernelName(const Op& op, const Template& variant, const Template::Point& point,
                         const Step& step) const override {
    return FillIn(step.kernel, TypeNames::kPlain, op, variant, point) +
           (WarpKernelOf(step).adjoint ? " (adjoint)" : "");
  }

  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    return units->AddForEachStep(use, [&](const Step& step, Unit* unit) -> Status {
      const bool host = unit->target.kind == TargetKind::kHost;
      unit->compiler = "warp";
      unit->format = host ? ObjectFormat::kHostObject : ObjectFormat::kCubin;
      unit->block_by_compiler = !host;
      const std::string kernel = FillIn(step.kernel, TypeNames::kPlain, units->op(*use),
                                        units->variant(*use), units->point(*use));
      KB_ASSIGN_OR_RETURN(unit->extra_options,
                          WarpRequest(units->point(*use), step, kernel, unit->target));
      return Status();
    });
  }

  void AddLooks(std::vector<Look>* looks) const override {
    looks->push_back({Look::For::kVariants, "warp", [](const Toolchain&) {
                        return TryPackage("Warp", WarpPackage(),
                                          "import warp\n"
                                          "warp.config.kernel_cache_dir = 'cache'\n"
                                          "warp.init()\n");
                      }});
  }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(std::make_unique<WarpCompiler>());
  }
};

}  // namespace

const Provider* WarpProvider() {
  static const Warp warp;
  return &warp;
}

}  // namespace kbundle::builder
