// A provider is a class and one line that registers it: this one, of which nothing outside this
// file knows, reads keys and a step of its own, gives units to a compiler of its own, and ends in a
// bundle that the loader runs.
//
// What it "compiles" is a formula of C, `formula = "3 * x + 1"`, made into a shared object by the
// C++ compiler, so that its variants run as those of provider host do.
#include <gtest/gtest.h>

#include "builder/compile/compile.h"
#include "builder/library.h"
#include "builder/manifest/tables.h"
#include "builder/provider/host/compile.h"
#include "builder/provider/provider.h"
#include "builder/support/files.h"
#include "kbundle/runtime.h"
#include "support/run_sample.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

struct Formula : ProviderPart {
  std::string text;
};

class FormulaCompiler : public Compiler {
 public:
  std::string_view name() const override { return "formula"; }
  uint8_t number() const override { return 200; }
  Sources sources() const override { return Sources::kHostCpp; }
  Status Find(const std::vector<const Unit*>& /*units*/, const std::string& /*python*/,
              Toolchain* tools) override {
    KB_RETURN_IF_ERROR(tools->NeedHostCompiler());
    tools->FindHostParts();
    return Status();
  }
  std::vector<std::string> Options(const Unit& unit) const override { return {unit.extra_options}; }
  Result<Sha256Digest> Identity(const Unit& /*unit*/, const Toolchain& tools,
                                ToolDigests* digests) const override {
    return digests->Of(tools.host_parts);
  }
  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& /*tree*/,
                         const std::string& /*key*/, const CompileContext& context) const override {
    constexpr char kHeader[] = "kbundle/host_kernel.h";
    KB_ASSIGN_OR_RETURN(const std::string header,
                        ReadFile(context.tools.kernel_includes + "/" + kHeader));
    SourceTree tree;
    tree.files.push_back({"formula.cc",
                          "#include \"kbundle/host_kernel.h\"\n"
                          "static void F(int64_t begin, int64_t end, float* y, const float* in) {\n"
                          "  for (int64_t i = begin; i < end; ++i) {\n"
                          "    const float x = in[i];\n    y[i] = " +
                              unit.extra_options + ";\n  }\n}\nKB_HOST_KERNEL(formula, F);\n",
                          {},
                          ""});
    tree.files.push_back({kHeader, header, {}, ""});
    return CompileForHost(unit, tree, context);
  }
};

class Toy : public Provider {
 public:
  std::string_view name() const override { return "toy"; }
  std::string_view bundle_name() const override { return "host"; }
  bool MakesCodeFor(const Target& target) const override {
    return target.kind == TargetKind::kHost;
  }
  std::string TargetsInWords() const override { return "toy targets: x86-64-v2 and above"; }

  void ReadVariantKeys(VariantTable& table) const override {
    auto formula = std::make_shared<Formula>();
    if (const Node* text = table.fields.Require("formula", Kind::kString)) {
      formula->text = text->text;
    }
    table.variant.compiler = "formula";
    table.variant.own = std::move(formula);
    ReadTargets(table);
  }
  void ReadPoints(VariantTable& table) const override { ReadGrid(table); }
  void ReadKernelStep(StepTable& table) const override {
    if (auto items = ReadDims(table, "items", StepPlace("`items`")); !items.empty()) {
      table.step.range = items[0];
    }
    table.step.grain.text = "1";
    table.step.grain.code = ConstantCode(1);
  }
  std::string KernelName(const Op& /*op*/, const Template& /*variant*/,
                         const Template::Point& /*point*/, const Step& step) const override {
    return step.kernel;
  }
  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    Unit unit = units->New(*use);
    unit.compiler = "formula";
    unit.format = ObjectFormat::kHostObject;
    unit.extra_options = static_cast<const Formula&>(*units->variant(*use).own).text;
    units->AddForAllSteps(std::move(unit), /*collects=*/false, use);
    return Status();
  }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(std::make_unique<FormulaCompiler>());
  }
};

constexpr char kToyManifest[] = R"toml([family]
name = "toy"

[op.map]
operands = { x = "f32[N]" }
results = { y = "f32[N]" }

[[op.map.variant]]
name = "formula"
provider = "toy"
formula = "3 * x + 1"
steps = [{ kernel = "formula", items = ["N"], args = ["y", "x"] }]
)toml";

class ToyProvider : public ::testing::Test {
 protected:
  ToyProvider() {
    options_.paths = {folder_ / "toy.toml"};
    options_.output = folder_ / "toy.kb";
    options_.cache_dir = folder_ / "cache";
    options_.targets = {"x86-64-v2"};
  }
  Result<BuildReport> BuildFrom(const std::string& manifest) {
    WriteText(folder_ / "toy.toml", manifest);
    const std::atomic<bool> cancel{false};
    return Build(options_, reporter_, cancel);
  }

  const Toy toy_;
  const AddedProvider added_{&toy_};
  Folder folder_;
  BuildOptions options_;
  RecordingReporter reporter_;
};

TEST_F(ToyProvider, GoesFromItsKeysInAManifestToALaunch) {
  const Result<BuildReport> report = BuildFrom(kToyManifest);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->compiled, 1);
  const auto bundle = Bundle::Open(options_.output);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  Runtime runtime;
  const auto plan = runtime.MakePlan(*bundle, testing::ProblemOf(**bundle, "toy.map", {"f32[5]"}),
                                     Device::Kind::kHost);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  float x[] = {0, 1, 2, 3, 4}, y[] = {-1, -1, -1, -1, -1};
  void* operands[] = {x};
  void* results[] = {y};
  ASSERT_TRUE((*plan)->Launch(nullptr, {operands, results, nullptr}).ok());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(y[i], 3 * x[i] + 1) << i;
}

TEST_F(ToyProvider, WhatItReadsDecidesWhatIsCompiledAnew) {
  ASSERT_TRUE(BuildFrom(kToyManifest).ok());
  EXPECT_EQ(BuildFrom(kToyManifest)->reused, 1);
  EXPECT_EQ(BuildFrom(Replaced(kToyManifest, "3 * x", "4 * x"))->compiled, 1);
}

TEST_F(ToyProvider, ItsMistakesAreToldAtTheirPlace) {
  const auto message = [this](const std::string& from, const std::string& to) {
    const auto report = BuildFrom(Replaced(kToyManifest, from, to));
    return report.ok() ? std::string() : std::string(report.status().message());
  };
  EXPECT_NE(message("formula = \"3 * x + 1\"\n", "").find("a variant needs the key 'formula'"),
            std::string::npos);
  EXPECT_NE(message("formula = ", "targets = [\"sm_90a\"]\nformula = ")
                .find("'sm_90a' is no target of the provider toy"),
            std::string::npos);
  EXPECT_NE(message("provider = \"toy\"", "provider = \"tow\"").find("did you mean 'toy'?"),
            std::string::npos);
}

TEST_F(ToyProvider, IsChosenByNameLikeTheOthers) {
  options_.providers = {"cuda"};
  EXPECT_FALSE(BuildFrom(kToyManifest).ok());
  options_.providers = {"toy"};
  EXPECT_TRUE(BuildFrom(kToyManifest).ok());
}

}  // namespace
}  // namespace kbundle::builder
