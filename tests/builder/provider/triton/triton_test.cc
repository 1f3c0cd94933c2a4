// Promise: a Triton step of a manifest becomes what Triton is asked for and what is launched: types
// from operands, constexprs from the grid point, hints as conditions, scratch pointers null.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "builder/compile/work.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/provider/provider.h"
#include "builder/provider/triton/request.h"
#include "builder/source/tree.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kTritonManifest[] = R"toml(
[family]
name = "demo"

[op.run]
types      = { T = ["bf16", "e4m3"] }
operands   = { x = "T[rows.., K]", mask = { shape = "bool[K]", optional = true } }
attributes = { scale = { type = "float", default = 1.0 } }
results    = { y = "T[rows.., K]" }

[[op.run.variant]]
name      = "tri"
provider  = "triton"
source    = "run.py"
tunables  = { BLOCK = [64, 128], MASK = [0, 1] }
let       = { HALF = "K / 2" }
when      = ["present(mask) == (MASK == 1)"]
workspace = { partial = "f32[K]" }
steps     = [
  { kernel = "run", grid = ["rows", "HALF"], num_warps = "BLOCK / 32", constexprs = { B = "BLOCK * 2", M = "MASK == 1", D = "T", E = 0.5, N = "none", F = true },
    args = ["y", "x", "mask", "partial", "i32(HALF)", "i64(rows)", "f32(scale)", "bool(K > 1)"],
    divisible_by_16 = ["y", "partial", "i32(HALF)"], equal_to_1 = ["i64(rows)"] },
  { kernel = "again", grid = [1], when = "K > 4", args = ["y", "i32(K)"], divisible_by_16 = ["i32(K)"] },
]
)toml";

class TritonManifest : public ::testing::Test {
 protected:
  TritonManifest() {
    std::string pattern = (fs::temp_directory_path() / "kb_triton_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    Write("run.py", "import helpers, numpy\nfrom pack.inner import thing\n  from  .. import up\n");
    Write("helpers.py", "import deeper as d\n");
    Write("deeper.py", "");
    Write("unused.py", "");
    Write("pack/__init__.py", "");
    Write("pack/inner.py", "from helpers import x");
    Write("demo.toml", kTritonManifest);
    Result<Family> family = ReadManifest((folder_ / "demo.toml").string());
    EXPECT_TRUE(family.ok()) << family.status().ToString();
    if (family.ok()) family_ = std::move(*family);
  }
  ~TritonManifest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  Work WorkFor(const std::vector<std::string>& names, std::vector<const Provider*> providers = {}) {
    std::vector<Target> targets;
    for (const std::string& name : names) targets.push_back(*Target::Parse(name));
    families_ = {family_};
    Result<Work> work = PlanWork(families_, targets, providers);
    EXPECT_TRUE(work.ok());
    return work.ok() ? std::move(*work) : Work();
  }
  const Template& variant() const { return family_.ops[0].templates[0]; }

  fs::path folder_;
  Family family_;
  std::vector<Family> families_;
};

TEST_F(TritonManifest, HintsBecomeConditions) {
  std::vector<std::string> texts;
  for (const Program& rule : variant().when) texts.push_back(rule.text);
  EXPECT_EQ(texts,
            (std::vector<std::string>{"present(mask) == (MASK == 1)", "align(y) % 16 == 0",
                                      "HALF % 16 == 0", "rows == 1", "!(K > 4) || K % 16 == 0"}));
}

TEST_F(TritonManifest, WhatIsLaunchedLacksTheOneAndEndsWithNullScratch) {
  std::vector<std::string> texts;
  for (const Arg& arg : variant().steps[0].args) texts.push_back(arg.text);
  EXPECT_EQ(texts,
            (std::vector<std::string>{"y", "x", "mask", "partial", "i32(HALF)", "f32(scale)",
                                      "bool(K > 1)", "no global scratch", "no profile scratch"}));
  EXPECT_TRUE(variant().steps[0].block.empty());
  EXPECT_TRUE(variant().steps[0].shared.empty());
}

TEST_F(TritonManifest, TheRequestHoldsTypesConstantsAndOptions) {
  const Work work = WorkFor({"sm_90a"});
  ASSERT_EQ(work.variants.size(), 8u);
  const Unit& unit = work.units[work.variants[7].units[0]];  // e4m3, BLOCK 128, MASK 1
  const Json request = Json::parse(unit.extra_options);
  EXPECT_EQ(request["function"], "run");
  EXPECT_EQ(request["capability"], 90);
  EXPECT_EQ(request["options"], (Json{{"num_warps", 4}, {"num_stages", 3}}));
  EXPECT_EQ(request["constexprs"], Json::parse(R"({"B": 256, "M": true, "D": {"dtype": "fp8e4nv"},
                                                   "E": 0.5, "N": null, "F": true})"));
  std::vector<std::string> types;
  for (const Json& parameter : request["parameters"]) types.push_back(parameter["type"]);
  EXPECT_EQ(types, (std::vector<std::string>{"*fp8e4nv", "*fp8e4nv", "*i1", "*fp32", "i32", "i64",
                                             "fp32", "i1"}));
  EXPECT_EQ(request["parameters"][0]["divisible_by_16"], true);
  EXPECT_EQ(request["parameters"][5]["equal_to_1"], true);
}

TEST_F(TritonManifest, EqualKernelsOfSeveralVariantsAreCompiledOnce) {
  const Work work = WorkFor({"sm_90a"});
  // 8 points of "run"; "again" depends on the type alone.
  EXPECT_EQ(work.units.size(), 8u + 2u);
}

TEST_F(TritonManifest, TargetsThatTritonDoesNotMakeAreLeftOutAloud) {
  const Work work = WorkFor({"sm_80", "sm_90a", "sm_90", "sm_100f", "portable", "x86-64-v2"});
  std::vector<std::string> names;
  for (const Target& target : work.targets) names.push_back(target.ToString());
  EXPECT_EQ(names, (std::vector<std::string>{"sm_80", "sm_90a"}));
  ASSERT_EQ(work.notes.size(), 2u);
  EXPECT_NE(work.notes[0].find("leave demo.run/tri out of sm_100f: Triton makes sm_100a"),
            std::string::npos)
      << work.notes[0];
  EXPECT_NE(work.notes[1].find("out of sm_90: Triton makes sm_90a"), std::string::npos);
}

TEST_F(TritonManifest, ProvidersThatAreNotWantedAreLeftOut) {
  EXPECT_TRUE(WorkFor({"sm_90a"}, {FindProvider("cuda"), FindProvider("host")}).variants.empty());
  EXPECT_EQ(WorkFor({"sm_90a"}, {FindProvider("triton")}).variants.size(), 8u);
}

TEST_F(TritonManifest, TheSourceTreeHoldsTheModulesOfItsFolderThatItImports) {
  SourceReader reader;
  const auto tree = reader.ReadPython(folder_.string(), "run.py");
  ASSERT_TRUE(tree.ok());
  std::vector<std::string> names;
  for (const SourceFile& file : (*tree)->files) names.push_back(file.name);
  EXPECT_EQ(names, (std::vector<std::string>{"run.py", "helpers.py", "pack/__init__.py",
                                             "pack/inner.py", "deeper.py"}));
  EXPECT_EQ((*tree)->external, (std::vector<std::string>{"numpy"}));
}

}  // namespace
}  // namespace kbundle::builder
