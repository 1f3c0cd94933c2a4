// Provider triton: a unit per kernel, since Triton compiles one at a time.
#include "builder/provider/provider.h"

#include <fmt/format.h>

#include "builder/compile/compile.h"
#include "builder/manifest/tables.h"
#include "builder/provider/triton/compile.h"
#include "builder/provider/triton/manifest.h"
#include "builder/provider/triton/python.h"
#include "builder/provider/triton/request.h"
#include "builder/tools/finding.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kMostSpill = 1 << 20;

class TritonCompiler : public Compiler {
 public:
  std::string_view name() const override { return "triton"; }
  uint8_t number() const override { return 3; }
  Sources sources() const override { return Sources::kPython; }

  Status Find(const std::vector<const Unit*>& /*units*/, const std::string& python,
              Toolchain* /*tools*/) override {
    package_ = TritonPackage();
    found_ = FindPackage(package_, python);
    // Line tables would carry the folder's name into the code.
    workers_ = std::make_unique<PythonWorkers>(
        PythonProgram{"Triton",
                      found_.python,
                      kTritonScript,
                      {"TRITON_DISABLE_LINE_INFO=1", "TRITON_DUMP_PTXAS_LOG=1", "PYTHONHASHSEED=0",
                       "TRITON_CACHE_DIR={home}/cache", "TRITON_HOME={home}"}});
    return found_.Need(package_);
  }

  std::vector<std::string> Options(const Unit& unit) const override { return {unit.extra_options}; }

  // All that the package installed, ptxas as it is on the disk, and how kbundle calls it.
  Result<Sha256Digest> Identity(const Unit& /*unit*/, const Toolchain& /*tools*/,
                                ToolDigests* digests) const override {
    return found_.Identity(package_, digests);
  }

  // Triton's own files are in its digest.
  std::vector<std::string> ModuleFiles(const std::string& module) const override {
    return module == "triton" ? std::vector<std::string>() : found_.FilesOfModule(module);
  }

  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                         const std::string& /*key*/, const CompileContext& context) const override {
    return CompileWithTriton(unit, tree, context.limit, workers_.get());
  }

  std::vector<std::string> Variables() const override {
    return {"KBUNDLE_PYTHON", "VIRTUAL_ENV", "PATH"};
  }
  Result<std::optional<std::pair<std::string, std::string>>> Provenance(
      const Toolchain& /*tools*/, ToolDigests* /*digests*/) const override {
    return std::optional(std::pair(std::string("triton"), found_.VersionAndDigest()));
  }

 private:
  PythonPackage package_;
  FoundPackage found_;
  std::unique_ptr<PythonWorkers> workers_;
};

class Triton : public Provider {
 public:
  std::string_view name() const override { return "triton"; }
  bool MakesCodeFor(const Target& target) const override { return TritonMakes(target); }
  std::string TargetsInWords() const override {
    return "Triton makes code for sm_80, sm_86, sm_89, sm_90a, sm_100a and their like";
  }
  // Code for exactly sm_100a must not stand in the bundle as code for sm_100f.
  std::string WhyLeftOut(const Target& target) const override {
    const std::string made = TritonWouldMake(target);
    if (made.empty()) return "";
    return fmt::format("Triton makes {}; for that GPU add it to --target", made);
  }

  void ReadVariantKeys(VariantTable& table) const override {
    ReadSource(table, /*required=*/true);
    table.variant.compiler = "triton";
    table.fields.Refuse("compiler", "only cuda variants choose a compiler", "this one has Triton");
    table.fields.Refuse("portable", "only a cuda variant can be portable",
                        "Triton makes code for one exact GPU");
    table.fields.Refuse("flags", "a Triton variant has no compiler flags",
                        "what Triton can be told is in the steps: num_warps, num_stages, maxnreg");
    table.variant.max_spill = table.fields.TakeInteger("max_spill", 0, 0, kMostSpill);
    ReadTargets(table);
  }
  void ReadPoints(VariantTable& table) const override { ReadGrid(table); }
  void ReadKernelStep(StepTable& table) const override { ReadTritonLaunch(table); }
  void FinishKernelStep(StepTable& table) const override { ReadTritonHints(table); }

  std::string KernelName(const Op& /*op*/, const Template& /*variant*/,
                         const Template::Point& /*point*/, const Step& step) const override {
    return step.kernel;
  }

  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    return units->AddForEachStep(use, [&](const Step& step, Unit* unit) -> Status {
      unit->compiler = "triton";
      unit->block_by_compiler = true;
      KB_ASSIGN_OR_RETURN(unit->extra_options,
                          TritonRequest(units->op(*use), units->variant(*use), units->point(*use),
                                        step, unit->target));
      return Status();
    });
  }

  void AddLooks(std::vector<Look>* looks) const override {
    looks->push_back({Look::For::kVariants, "triton", [](const Toolchain&) {
                        return TryPackage("Triton", TritonPackage(),
                                          "import triton.compiler, triton.language\n"
                                          "triton.language.constexpr(1)\n");
                      }});
  }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(std::make_unique<TritonCompiler>());
  }
};

}  // namespace

const Provider* TritonProvider() {
  static const Triton triton;
  return &triton;
}

}  // namespace kbundle::builder
