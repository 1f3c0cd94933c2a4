// Promise: a step of Warp becomes what Warp's own launcher would pass: launch bounds and arrays with
// their shapes and strides as structs, gradients where the adjoint finds them; and what Warp is asked for.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "builder/compile/work.h"
#include "builder/expression/evaluate.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/provider/provider.h"
#include "builder/provider/warp/element.h"
#include "builder/provider/warp/kernel.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kWarpManifest[] = R"toml(
[family]
name = "demo"

[op.run]
types      = { T = ["f32", "f64"] }
operands   = { x = "f32[rows.., N, 3]", m = "T[N, A, B]", s = { shape = "f32[P, Q, 2]", strided = true } }
attributes = { g = { type = "float[]", max_len = 3 } }
results    = { y = "f32[rows.., N, 3]", dx = "f32[rows.., N, 3]" }

[[op.run.variant]]
name      = "warp"
provider  = "warp"
source    = "run.py"
tunables  = { BLOCK = [64, 128] }
let       = { HALF = "N / 2" }
workspace = { part = "f64[N, HALF]" }
steps     = [
  { memset = "dx" },
  { kernel = "move_{T}", dim = ["rows", "HALF", 2], block_dim = "BLOCK", grain = 64,
    args = ["vec3(x)", "T[2, 4](m)", "vec2f(s)", "part", "vec3(g)", "i16(N)", "bool(N > 2)", "f64(3)"] },
  { kernel = "turn", adjoint = true, dim = ["N"], args = ["vec3(x)", "vec3(y)", "i32(N)"], adjoints = ["dx", "none", "none"] },
  { kernel = "tiles", tiled = true, block_dim = 32, dim = ["N"], when = "N > 4", args = ["T[8](m)"] },
]
)toml";

class WarpManifest : public ::testing::Test {
 protected:
  WarpManifest() {
    std::string pattern = (fs::temp_directory_path() / "kb_warp_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::ofstream(folder_ / "run.py") << "import warp as wp\n";
    std::ofstream(folder_ / "demo.toml") << kWarpManifest;
    Result<Family> family = ReadManifest((folder_ / "demo.toml").string());
    EXPECT_TRUE(family.ok()) << family.status().ToString();
    if (family.ok()) families_.push_back(std::move(*family));
    bindings_.types = {DType::kF64};
    bindings_.tunables = {128};
    bindings_.lets = {5};
    bindings_.tensors.resize(5);
  }
  ~WarpManifest() override { fs::remove_all(folder_); }

  const Op& op() const { return families_[0].ops[0]; }
  const Template& variant() const { return op().templates[0]; }
  const Step& step(size_t number) const { return variant().steps[number]; }
  const StructArg& Struct(const Step& step, size_t arg) const {
    EXPECT_EQ(step.args[arg].kind, ArgKind::kStruct);
    return step.structs[step.args[arg].index];
  }

  // {offset: number} of the fields that are numbers, for rows = 2, N = 10.
  std::map<uint32_t, int64_t> Numbers(const StructArg& arg) {
    std::map<std::string, int64_t> values = {{"rows", 2}, {"N", 10}, {"A", 2},
                                             {"B", 4},    {"P", 6},  {"Q", 7}};
    for (const std::string& symbol : op().symbols) bindings_.symbols.push_back(values[symbol]);
    bindings_.tensors[2] = {true, {6, 7, 2}};
    std::map<uint32_t, int64_t> found;
    for (const StructArg::Field& field : arg.fields) {
      if (field.arg.kind != ArgKind::kInteger) continue;
      const Slot slot = builder::Run(field.arg.program.code, bindings_);
      EXPECT_TRUE(slot.ok());
      found[field.offset] = slot.value;
    }
    bindings_.symbols.clear();
    return found;
  }

  Work WorkFor(const std::vector<std::string>& names) {
    std::vector<Target> targets;
    for (const std::string& name : names) targets.push_back(*Target::Parse(name));
    Result<Work> work = PlanWork(families_, targets, {});
    EXPECT_TRUE(work.ok()) << work.status().ToString();
    return work.ok() ? std::move(*work) : Work();
  }

  fs::path folder_;
  std::vector<Family> families_;
  Bindings bindings_;
};

using Numbered = std::map<uint32_t, int64_t>;

TEST_F(WarpManifest, LaunchBoundsHoldDimsAndTheirProduct) {
  const StructArg& bounds = Struct(step(1), 0);
  EXPECT_EQ(bounds.bytes.size(), 32u);  // three dims, padded
  EXPECT_EQ(bounds.bytes[24], 1);       // one thread a task
  EXPECT_EQ(Numbers(bounds), (Numbered{{0, 2}, {4, 5}, {8, 2}, {16, 20}}));
  EXPECT_EQ(Struct(step(2), 0).bytes.size(), 24u);
  EXPECT_EQ(Numbers(Struct(step(2), 0)), (Numbered{{0, 10}, {8, 10}}));
}

TEST_F(WarpManifest, TilesShareABlock) {
  EXPECT_EQ(Numbers(Struct(step(3), 0)), (Numbered{{0, 10}, {8, 320}, {16, 32}}));
  EXPECT_EQ(step(3).grid[0].text, "N");  // a block for each
}

TEST_F(WarpManifest, ArraysOfVectorsAndMatricesHaveTheOuterDimsAndByteStrides) {
  const StructArg& x = Struct(step(1), 1);
  EXPECT_EQ(x.bytes.size(), 56u);
  EXPECT_EQ(x.bytes[48], 2);  // rows.. is one dim
  EXPECT_EQ(x.fields[0].arg.kind, ArgKind::kOperand);
  EXPECT_EQ(Numbers(x), (Numbered{{16, 2}, {20, 10}, {32, 120}, {36, 12}}));
  EXPECT_EQ(Numbers(Struct(step(1), 2)), (Numbered{{16, 10}, {32, 64}}));  // of 2 x 4 f64
  EXPECT_EQ(Numbers(Struct(step(1), 4)), (Numbered{{16, 10}, {20, 5}, {32, 40}, {36, 8}}));
}

TEST_F(WarpManifest, StridesOfAnOperandAreItsOwn) {
  const StructArg& s = Struct(step(1), 3);
  EXPECT_EQ(s.bytes[48], 2);
  EXPECT_EQ(Numbers(s), (Numbered{{16, 6}, {20, 7}, {32, 56}, {36, 8}}));
}

TEST_F(WarpManifest, ValuesArePassedAsTheyAreAndSmallOnesAsStructs) {
  const Step& move = step(1);
  ASSERT_EQ(move.args.size(), 9u);
  EXPECT_EQ(move.args[5].kind, ArgKind::kArray);
  EXPECT_EQ(move.args[5].count, 3);
  EXPECT_EQ(Struct(move, 6).bytes.size(), 2u);
  EXPECT_EQ(Struct(move, 6).fields[0].arg.ctype, DType::kI16);
  EXPECT_EQ(move.args[7].ctype, DType::kBool);
  EXPECT_EQ(move.args[8].ctype, DType::kF64);
}

TEST_F(WarpManifest, WhatDimsMustBeBecomesAConditionOfTheVariant) {
  std::vector<std::string> texts;
  for (const Program& rule : variant().when) texts.push_back(rule.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"A == 2", "B == 4", "(stride(s, 2)) == 1",
                                             "len(g) == 3", "!(N > 4) || B == 8"}));
}

TEST_F(WarpManifest, AnAdjointGetsGradientsBesideTheArrays) {
  const Step& turn = step(2);
  ASSERT_EQ(turn.args.size(), 7u);
  const StructArg& x = Struct(turn, 1);
  ASSERT_EQ(x.fields[1].offset, 8u);  // so that Warp clears what was overwritten
  EXPECT_EQ(x.fields[1].arg.kind, ArgKind::kResult);
  EXPECT_EQ(Struct(turn, 2).fields[1].offset, 16u);  // no gradient
  const StructArg& dx = Struct(turn, 4);
  EXPECT_EQ(dx.fields[0].arg.kind, ArgKind::kResult);
  EXPECT_EQ(dx.fields[0].arg.index, 1);
  EXPECT_EQ(Struct(turn, 5).bytes, std::string(56, '\0'));
  EXPECT_TRUE(Struct(turn, 5).fields.empty());
  EXPECT_EQ(Struct(turn, 6).bytes, std::string(4, '\0'));
}

TEST_F(WarpManifest, OneStepIsALaunchOnGpusAndARangeOnCpus) {
  const Step& move = step(1);
  EXPECT_EQ(move.grid.size(), 1u);
  EXPECT_TRUE(move.block.empty());
  EXPECT_EQ(move.grain.text, "64");
  EXPECT_EQ(step(2).grain.code.size(), step(2).range.code.size());  // at once
}

TEST_F(WarpManifest, TheRequestSaysWhatTheKernelMustTake) {
  const Work work = WorkFor({"sm_90a", "x86-64-v3"});
  ASSERT_EQ(work.variants.size(), 8u);
  const Unit& unit = work.units[work.variants[3].units[1]];  // f64, BLOCK 128
  EXPECT_EQ(unit.format, ObjectFormat::kCubin);
  const Json request = Json::parse(unit.extra_options);
  EXPECT_EQ(request["kernel"], "move_f64");
  EXPECT_EQ(request["arch"], 90);
  EXPECT_EQ(request["target"], "sm_90a");
  EXPECT_EQ(request["block_dim"], 128);
  EXPECT_EQ(request["dims"], 3);
  EXPECT_EQ(request["parts"], false);
  EXPECT_EQ(request["arguments"][1],
            (Json{{"kind", "array"}, {"rank", 1}, {"scalar", "f64"}, {"shape", {2, 4}}}));
  EXPECT_EQ(request["arguments"][4], (Json{{"kind", "value"}, {"scalar", "f32"}, {"shape", {3}}}));
  const Unit& host = work.units[work.variants[7].units[1]];
  EXPECT_EQ(host.format, ObjectFormat::kHostObject);
  EXPECT_EQ(Json::parse(host.extra_options)["parts"], true);
  EXPECT_FALSE(Json::parse(host.extra_options).contains("block_dim"));
}

TEST_F(WarpManifest, CodeIsMadeForGpusFromTuringOnAndForCpus) {
  const Work work = WorkFor({"sm_70", "sm_75", "sm_90a", "sm_100f", "portable", "x86-64-v2"});
  std::vector<std::string> names;
  for (const Target& target : work.targets) names.push_back(target.ToString());
  EXPECT_EQ(names, (std::vector<std::string>{"sm_100f", "sm_75", "sm_90a", "x86-64-v2"}));
}

TEST(WarpElementName, IsWarps) {
  EXPECT_EQ(ParseWarpElement("vec3")->shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(ParseWarpElement("vec2ui")->scalar, DType::kU32);
  EXPECT_EQ(ParseWarpElement("mat44h")->scalar, DType::kF16);
  EXPECT_EQ(ParseWarpElement("quatd")->shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(ParseWarpElement("spatial_matrix")->shape, (std::vector<int64_t>{6, 6}));
  for (const char* name : {"vec5", "mat33i", "quati", "vec3x", "vec", ""}) {
    EXPECT_FALSE(ParseWarpElement(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace kbundle::builder
