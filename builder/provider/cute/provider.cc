// Provider cute: a unit per step; what the step launches is known when its unit is compiled.
#include "builder/provider/provider.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "builder/compile/compile.h"
#include "builder/manifest/tables.h"
#include "builder/provider/cute/compile.h"
#include "builder/provider/cute/draws.h"
#include "builder/provider/cute/kernel.h"
#include "builder/provider/cute/launch.h"
#include "builder/provider/cute/manifest.h"
#include "builder/provider/cute/python.h"
#include "builder/provider/cute/request.h"
#include "builder/tools/finding.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

class CuteCompiler : public Compiler {
 public:
  std::string_view name() const override { return "cute"; }
  uint8_t number() const override { return 7; }
  Sources sources() const override { return Sources::kPython; }

  Status Find(const std::vector<const Unit*>& units, const std::string& python,
              Toolchain* tools) override {
    package_ = CutePackage();
    found_ = FindPackage(package_, python);
    KB_RETURN_IF_ERROR(found_.Need(package_));
    for (const Unit* unit : units) {
      const std::string target = unit->target.ToString();
      workers_.try_emplace(target,
                           std::make_unique<PythonWorkers>(CuteProgram(found_.python, target)));
    }
    KB_ASSIGN_OR_RETURN(TemporaryFolder kept, TemporaryFolder::Make());
    kept_ = std::make_unique<TemporaryFolder>(std::move(kept));
    return tools->NeedHostCompiler();  // of what stands in for CUDA's runtime
  }

  std::vector<std::string> Options(const Unit& unit) const override { return {unit.extra_options}; }

  // What the C compiler makes is run and forgotten.
  Result<Sha256Digest> Identity(const Unit& /*unit*/, const Toolchain& /*tools*/,
                                ToolDigests* digests) const override {
    return found_.Identity(package_, digests);
  }

  // CuTe DSL's own files are in its digest.
  std::vector<std::string> ModuleFiles(const std::string& module) const override {
    return module == "cutlass" ? std::vector<std::string>() : found_.FilesOfModule(module);
  }

  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                         const std::string& /*key*/, const CompileContext& context) const override {
    return CompileWithCute(unit, tree, context, workers_.at(unit.target.ToString()).get(),
                           draws_.get(), kept_->path());
  }

  std::vector<std::string> Variables() const override {
    return {"KBUNDLE_PYTHON", "VIRTUAL_ENV", "PATH", "KBUNDLE_CXX"};
  }
  Result<std::optional<std::pair<std::string, std::string>>> Provenance(
      const Toolchain& /*tools*/, ToolDigests* /*digests*/) const override {
    return std::optional(std::pair(package_.name, found_.VersionAndDigest()));
  }

 private:
  PythonPackage package_;
  FoundPackage found_;
  std::map<std::string, std::unique_ptr<PythonWorkers>> workers_;  // by target, as its environment
  const std::unique_ptr<CuteDraws> draws_ = std::make_unique<CuteDraws>();
  std::unique_ptr<TemporaryFolder> kept_;
};

class Cute : public Provider {
 public:
  std::string_view name() const override { return "cute"; }
  bool MakesCodeFor(const Target& target) const override { return CuteMakes(target); }
  std::string TargetsInWords() const override {
    return "CuTe DSL makes code for sm_80, sm_86, sm_89, sm_90a, sm_100a and their like";
  }
  std::string WhyLeftOut(const Target& target) const override {
    if (target.kind != TargetKind::kCuda || CuteMakes(target)) return "";
    return "CuTe DSL's kernels are made for one GPU; add it to --target";
  }

  void ReadVariantKeys(VariantTable& table) const override {
    ReadSource(table, /*required=*/true);
    table.variant.compiler = "cute";
    RefuseKeys(table, {"compiler", "portable", "flags", "max_spill"},
               "its function decides what is compiled, and how");
    ReadTargets(table);
  }
  void ReadPoints(VariantTable& table) const override {
    auto own = std::make_shared<CuteVariant>();
    if (const Node* tunables = table.fields.Take("tunables")) {
      for (const Field& field : tunables->fields) {
        if (field.value.Is(Node::Kind::kString)) own->score_tunable = field.key;  // "score_mods"
      }
    }
    table.variant.own = std::move(own);
    ReadGrid(table);
  }
  void ReadKernelStep(StepTable& table) const override {
    table.fields.Refuse("kernel", "a variant of cute has no kernels by name",
                        "its steps name functions: { cute = \"forward\", args = [..] }");
    for (const char* key : {"grid", "block", "shared", "args"}) table.fields.Take(key);
  }
  std::string_view OwnStepKey() const override { return "cute"; }
  void ReadOwnStep(StepTable& table) const override { ReadCuteStep(table); }

  std::string KernelName(const Op& /*op*/, const Template& /*variant*/,
                         const Template::Point& /*point*/, const Step& step) const override {
    return step.kernel;
  }

  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    return units->AddForEachStep(use, [&](const Step& step, Unit* unit) -> Status {
      unit->compiler = "cute";
      KB_ASSIGN_OR_RETURN(unit->extra_options, CuteRequest(units->op(*use), units->variant(*use),
                                                           units->point(*use), step, unit->target));
      return Status();
    });
  }

  void AddLooks(std::vector<Look>* looks) const override {
    looks->push_back({Look::For::kVariants, "cute", [](const Toolchain&) {
                        return TryPackage("CuTe DSL", CutePackage(), "import cutlass.cute\n");
                      }});
  }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(std::make_unique<CuteCompiler>());
  }

  bool LearnsLaunches() const override { return true; }

  Result<std::vector<Step>> LearnedSteps(const Op& op, const Template& variant, const Step& step,
                                         const std::string& learned) const override {
    const Json facts = Json::parse(learned, nullptr, false);
    if (!facts.is_object() || !facts.contains("launches")) {
      return DataLoss("what was learned of '" + step.kernel + "' is damaged");
    }
    return CuteSteps(facts["launches"], op, variant, step);
  }

  void AddLearnedProvenance(const std::string& learned,
                            std::map<std::string, std::string>* rows) const override {
    const Json facts = Json::parse(learned, nullptr, false);
    if (!facts.is_object()) return;
    for (const auto& package : facts.value("packages", Json::array())) {
      const std::string name = package.at(0), version = package.at(1), license = package.at(2);
      rows->emplace(name + " licence", fmt::format("{}, of {}", license, version));
    }
  }
};

}  // namespace

const Provider* CuteProvider() {
  static const Cute cute;
  return &cute;
}

}  // namespace kbundle::builder
