// Provider host: a unit per source, with all its kernels, for each level of a CPU.
#include "builder/provider/provider.h"

#include <fmt/format.h>

#include "builder/compile/child_compile.h"
#include "builder/manifest/tables.h"
#include "builder/model/kernel_name.h"
#include "builder/provider/host/compile.h"
#include "builder/provider/host/types.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

void ReadRange(StepTable& table) {
  Fields& fields = table.fields;
  Step& step = table.step;
  if (const Node* range = fields.Take("range")) {
    if (auto program = ReadInteger(table.context, *range, StepPlace("`range`")))
      step.range = *program;
  } else {
    table.context.diagnostics.Error(step.where, "a host kernel needs the key 'range'",
                                    "the number of independent items, as in range = \"rows\"");
  }
  step.grain.text = "1";
  step.grain.code = ConstantCode(1);
  if (const Node* grain = fields.Take("grain")) {
    if (auto program = ReadInteger(table.context, *grain, StepPlace("`grain`")))
      step.grain = *program;
  }
  for (const char* key : {"grid", "block", "cluster", "shared", "programmatic"}) {
    fields.Refuse(key, fmt::format("only cuda kernels have `{}`", key),
                  "a host kernel has range and grain");
  }
}

class HostCompiler : public Compiler {
 public:
  std::string_view name() const override { return "c++"; }
  uint8_t number() const override { return 2; }
  Sources sources() const override { return Sources::kHostCpp; }

  Status Find(const std::vector<const Unit*>& units, const std::string& /*python*/,
              Toolchain* tools) override {
    for (const Unit* unit : units) {
      KB_RETURN_IF_ERROR(unit->target.IsArm() ? tools->NeedArmCompiler()
                                              : tools->NeedHostCompiler());
    }
    KB_RETURN_IF_ERROR(tools->NeedKernelIncludes());
    tools->FindHostParts();
    return Status();
  }

  std::vector<std::string> Options(const Unit& unit) const override { return HostOptions(unit); }
  Result<Sha256Digest> Identity(const Unit& unit, const Toolchain& tools,
                                ToolDigests* digests) const override {
    return digests->Of(unit.target.IsArm() ? tools.arm_parts : tools.host_parts);
  }

  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                         const std::string& /*key*/, const CompileContext& context) const override {
    return CompileForHost(unit, *tree, context);
  }
  bool TellsTypes() const override { return true; }
  Result<ParameterTypes> ReadTypes(const Unit& unit, const SourceTree& tree,
                                   const CompileContext& context) const override {
    return ReadHostTypes(unit, tree, context);
  }
  std::vector<std::string> Command(const Unit& unit, const Toolchain& tools) const override {
    return CommandOf(tools.HostCompiler(unit.target), HostOptions(unit), unit, tools);
  }
  std::vector<std::string> Variables() const override {
    return {"KBUNDLE_CXX", "KBUNDLE_CXX_ARM", "KBUNDLE_INCLUDE", "PATH"};
  }

  Result<std::optional<std::pair<std::string, std::string>>> Provenance(
      const Toolchain& tools, ToolDigests* digests) const override {
    KB_ASSIGN_OR_RETURN(std::string said, VersionAndDigest(ToolVersion(tools.host_compiler),
                                                           tools.host_parts, digests));
    return std::optional(std::pair(std::string("host compiler"), std::move(said)));
  }
};

class Host : public Provider {
 public:
  std::string_view name() const override { return "host"; }
  bool MakesCodeFor(const Target& target) const override {
    return target.kind == TargetKind::kHost;
  }
  std::string TargetsInWords() const override {
    return "host targets: x86-64-v2, x86-64-v3, x86-64-v4, armv8-a";
  }

  void ReadVariantKeys(VariantTable& table) const override {
    ReadSource(table, /*required=*/true);
    table.variant.compiler = "c++";
    table.fields.Refuse("compiler", "only cuda variants choose a compiler",
                        "a host variant is compiled by the system's C++ compiler");
    table.fields.Refuse("portable", "only a cuda variant can be portable");
    table.fields.Refuse("max_spill", "only cuda kernels spill registers");
    ReadFlags(table);
    ReadTargets(table);
  }
  void ReadPoints(VariantTable& table) const override { ReadGrid(table); }
  void ReadKernelStep(StepTable& table) const override {
    if (const Node* kernel = table.fields.Take("kernel", Kind::kString)) {
      CheckPlaceholders(table.context, *kernel);
    }
    ReadRange(table);
  }

  bool TakesStructs() const override { return true; }

  std::string KernelName(const Op& op, const Template& variant, const Template::Point& point,
                         const Step& step) const override {
    return FillIn(step.kernel, TypeNames::kPlain, op, variant, point);
  }

  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    Unit unit = units->New(*use);
    AddSourceAndFlags(units->variant(*use), units->family(*use), &unit);
    unit.compiler = "c++";
    unit.format = ObjectFormat::kHostObject;
    unit.label = fmt::format("{}/{}@{}", unit.family->name, unit.source, unit.target.ToString());
    units->AddForAllSteps(unit, /*collects=*/true, use);
    return Status();
  }

  void AddLooks(std::vector<Look>* looks) const override { AddHostLooks(looks); }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(std::make_unique<HostCompiler>());
  }
};

}  // namespace

const Provider* HostProvider() {
  static const Host host;
  return &host;
}

}  // namespace kbundle::builder
