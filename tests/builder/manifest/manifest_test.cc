// A manifest becomes plain values: in the order of the file, names resolved, expressions compiled.
#include "builder/manifest/manifest.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "builder/model/family.h"
#include "builder/provider/provider.h"
#include "support/ordinary_user.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

constexpr char kInterface[] = R"toml(
[family]
name      = "demo"
reference = "reference.py"

[op.run]
summary     = "a demonstration"
types       = { T = ["f32", "bf16"], O = { attribute = "out", one_of = ["f16", "e4m3"] } }
operands    = { zeta = "T[rows.., Q, K]", alpha = { shape = "u8[M, ceil_div(K, 2), 1]", optional = true, bound = "K" }, flat = "f32[rows]" }
attributes  = { out = { type = "dtype", default = "e4m3" }, scale = { type = "float", default = 2 }, axes = { type = "int[]", max_len = 3, default = [1, 2] }, mode = { type = "enum", one_of = ["none", "causal"], default = "causal" } }
results     = { y = "T[rows.., Q, K]", aux = { shape = "O[rows.., K / 2 + Q]", when = "present(alpha)" } }
aliases     = { y = "zeta" }
require     = ["K >= 1", "mode == 'none' || Q == K"]
coordinates = ["K", "rows"]
vmap        = "leading"
tolerance   = { y = { f32 = 2e-6, bf16 = "1ulp" }, aux = 1e-3 }
)toml";

constexpr char kProblems[] = R"toml(
problems    = [ { T = "bf16", zeta = [2, 3, 4, 4], scale = 0.5 }, { T = "f32", zeta = [8, 8], alpha = [5, 4, 1], mode = "none" } ]
)toml";

constexpr char kVariants[] = R"toml(
[[op.run.variant]]
name      = "tiled"
provider  = "cuda"
source    = "run.cu"
targets   = ["sm_90a"]
flags     = ["-lineinfo"]
types     = { T = ["bf16", "f32"] }
tunables  = { VEC = [8, 4], THREADS = [256, 128] }
keep      = ["VEC * sizeof(T) <= 16"]
when      = ["K % VEC == 0", "LATE > 0"]
let       = { LATE = "EARLY + 1", EARLY = "rows * Q" }
workspace = { partial = "f32[EARLY, K]", marks = "T[LATE]" }
portable  = true
max_spill = 8
steps     = [
  { memset = "partial", value = 255 },
  { kernel = "run<{T}, {VEC}, {O}>", grid = ["min(EARLY, sm_count)", 2], block = ["THREADS"], cluster = [2], shared = "THREADS * 4", programmatic = true,
    args = ["y", "partial", "zeta", "alpha", "f32(scale)", "f64(K)", "i64(rows)", "u32(K * 2)", "bool(K > 1)", "i32(mode)", "i32[4](axes)", { tensor_map = "zeta", dims = ["K", "rows * Q"], strides = ["K * sizeof(T)"], box = ["64", 8], swizzle = "64b" }] },
  { copy = "aux", from = "aux", when = "present(aux)" },
]

[[op.run.variant]]
name     = "simd"
provider = "host"
source   = "run.cc"
steps    = [ { kernel = "run_{T}_{O}", range = "rows * Q", args = ["y", "zeta"] } ]
)toml";

class ManifestTest : public ::testing::Test {
 protected:
  ManifestTest() {
    std::string pattern = (fs::temp_directory_path() / "kb_manifest_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    for (const char* name : {"run.cu", "run.cc", "reference.py"}) Write(name, "");
  }
  ~ManifestTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  Family Read(const std::string& text) {
    Write("demo.toml", text);
    Result<Family> family = ReadManifest((folder_ / "demo.toml").string());
    EXPECT_TRUE(family.ok()) << family.status().ToString();
    return family.ok() ? std::move(*family) : Family();
  }
  Family ReadAll() { return Read(std::string(kInterface) + kProblems + kVariants); }

  fs::path folder_;
};

TEST_F(ManifestTest, ReadsTheInterfaceInTheOrderOfTheFile) {
  Family family = ReadAll();
  EXPECT_EQ(family.name, "demo");
  EXPECT_EQ(family.reference, "reference.py");
  EXPECT_EQ(family.directory, folder_.string());
  ASSERT_EQ(family.ops.size(), 1u);
  const Op& op = family.ops[0];
  EXPECT_EQ(op.name, "demo.run");
  EXPECT_EQ(op.symbols, (std::vector<std::string>{"rows", "Q", "K", "M"}));
  ASSERT_EQ(op.operands.size(), 3u);
  EXPECT_EQ(op.operands[0].name, "zeta");
  EXPECT_EQ(op.operands[1].name, "alpha");
  EXPECT_EQ(op.operands[2].name, "flat");
  EXPECT_EQ(op.attributes[1].floats, (std::vector<double>{2.0}));
  EXPECT_EQ(op.attributes[2].integers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(op.attributes[3].integers, (std::vector<int64_t>{1}));
  EXPECT_EQ(op.types[1].attribute, 0);
  EXPECT_EQ(op.results[0].alias, 0);
  EXPECT_EQ(op.coordinates, (std::vector<int>{2, 0}));
  EXPECT_EQ(op.vmap, VmapRule::kLeading);
  ASSERT_EQ(op.tolerances.size(), 3u);
  EXPECT_EQ(op.tolerances[1].ulps, 1.0);
  EXPECT_EQ(op.tolerances[2].relative, 1e-3);
}

TEST_F(ManifestTest, TellsBindingDimsFromComputedOnes) {
  Op op = ReadAll().ops[0];
  const std::vector<Dim>& zeta = op.operands[0].dims;
  EXPECT_TRUE(zeta[0].ellipsis && zeta[0].bind);
  EXPECT_TRUE(zeta[1].bind && zeta[2].bind);
  const std::vector<Dim>& alpha = op.operands[1].dims;
  EXPECT_TRUE(alpha[0].bind);
  EXPECT_FALSE(alpha[1].bind);
  EXPECT_EQ(alpha[1].symbol, -1);
  EXPECT_EQ(alpha[1].program.text, "ceil_div(K, 2)");
  EXPECT_EQ(alpha[2].program.code.size(), 1u);
  // The product of an open group is a number, and binds nothing.
  EXPECT_FALSE(op.operands[2].dims[0].bind);
  EXPECT_FALSE(op.operands[2].dims[0].program.empty());
  EXPECT_TRUE(op.results[1].dims[0].ellipsis);
  EXPECT_FALSE(op.results[1].dims[0].bind);
}

TEST_F(ManifestTest, RemembersWhereAnExpressionStands) {
  Op op = ReadAll().ops[0];
  EXPECT_EQ(op.require[1].text, "mode == 'none' || Q == K");
  EXPECT_EQ(op.require[1].where.line, 13);
  EXPECT_EQ(op.require[1].where.column, 27);
  EXPECT_EQ(op.require[1].where.length, 24);
}

TEST_F(ManifestTest, ReadsAVariant) {
  const Template variant = ReadAll().ops[0].templates[0];
  EXPECT_EQ(variant.name, "tiled");
  EXPECT_EQ(variant.compiler, "nvrtc");
  EXPECT_EQ(variant.targets, (std::vector<std::string>{"sm_90a"}));
  EXPECT_EQ(variant.flags, (std::vector<std::string>{"-lineinfo"}));
  EXPECT_TRUE(variant.portable);
  EXPECT_EQ(variant.max_spill, 8);
  ASSERT_EQ(variant.lets.size(), 2u);
  EXPECT_EQ(variant.lets[0].name, "EARLY");
  EXPECT_EQ(variant.lets[1].name, "LATE");
  ASSERT_EQ(variant.regions.size(), 2u);
  EXPECT_EQ(variant.regions[0].type.dtype, DType::kF32);
  EXPECT_EQ(variant.regions[1].type.param, 0);
  ASSERT_EQ(variant.steps.size(), 3u);
  EXPECT_EQ(variant.steps[0].value, 255);
  EXPECT_EQ(variant.steps[0].target.kind, ArgKind::kRegion);
  EXPECT_EQ(variant.steps[2].kind, StepKind::kCopy);
}

TEST_F(ManifestTest, ReadsEveryKindOfArgument) {
  const Step step = ReadAll().ops[0].templates[0].steps[1];
  EXPECT_EQ(step.grid.size(), 2u);
  EXPECT_TRUE(step.programmatic);
  const std::pair<ArgKind, DType> wanted[] = {
      {ArgKind::kResult, DType::kInvalid},  {ArgKind::kRegion, DType::kInvalid},
      {ArgKind::kOperand, DType::kInvalid}, {ArgKind::kOperand, DType::kInvalid},
      {ArgKind::kFloat, DType::kF32},       {ArgKind::kInteger, DType::kF64},
      {ArgKind::kInteger, DType::kI64},     {ArgKind::kInteger, DType::kU32},
      {ArgKind::kInteger, DType::kBool},    {ArgKind::kInteger, DType::kI32},
      {ArgKind::kArray, DType::kI32},       {ArgKind::kTensorMap, DType::kInvalid}};
  ASSERT_EQ(step.args.size(), std::size(wanted));
  for (size_t i = 0; i < std::size(wanted); ++i) {
    EXPECT_EQ(step.args[i].kind, wanted[i].first) << i;
    EXPECT_EQ(step.args[i].ctype, wanted[i].second) << i;
  }
  EXPECT_EQ(step.args[10].count, 4);
  EXPECT_EQ(step.args[7].text, "u32(K * 2)");
  ASSERT_EQ(step.tensor_maps.size(), 1u);
  EXPECT_EQ(step.tensor_maps[0].type.param, 0);
  EXPECT_EQ(step.tensor_maps[0].swizzle, 2);
  EXPECT_EQ(step.tensor_maps[0].element_strides.size(), 2u);
}

TEST_F(ManifestTest, EnumeratesTypesThenTunablesTheLastFastest) {
  Op op = ReadAll().ops[0];
  const Template& variant = op.templates[0];
  // T = bf16: VEC 8 and 4 with both THREADS; T = f32: VEC 4 only; each for O = f16 and e4m3.
  ASSERT_EQ(variant.points.size(), 2 * 4 + 2 * 2u);
  EXPECT_EQ(variant.points[0].types, (std::vector<DType>{DType::kBF16, DType::kF16}));
  EXPECT_EQ(variant.points[0].tunables, (std::vector<int64_t>{8, 256}));
  EXPECT_EQ(variant.points[1].tunables, (std::vector<int64_t>{8, 128}));
  EXPECT_EQ(variant.points[2].tunables, (std::vector<int64_t>{4, 256}));
  EXPECT_EQ(variant.points[4].types, (std::vector<DType>{DType::kBF16, DType::kE4M3}));
  EXPECT_EQ(variant.points[8].tunables, (std::vector<int64_t>{4, 256}));
  EXPECT_EQ(variant.points[8].types, (std::vector<DType>{DType::kF32, DType::kF16}));
  // Types that a variant does not restrict are the op's; no tunables are one point.
  EXPECT_EQ(op.templates[1].points.size(), 4u);
}

TEST_F(ManifestTest, SubstitutesTypesAndTunables) {
  Op op = ReadAll().ops[0];
  const Template& cuda = op.templates[0];
  EXPECT_EQ(cuda.provider->KernelName(op, cuda, cuda.points[4], cuda.steps[1]),
            "run<__nv_bfloat16, 8, __nv_fp8_e4m3>");
  const Template& host = op.templates[1];
  EXPECT_EQ(host.provider->KernelName(op, host, host.points[3], host.steps[0]), "run_bf16_e4m3");
  Template nvcc = cuda;
  nvcc.compiler = "nvcc";
  nvcc.steps[1].kernel = "run_{T}_{VEC}";
  EXPECT_EQ(nvcc.provider->KernelName(op, nvcc, nvcc.points[0], nvcc.steps[1]), "run_bf16_8");
}

TEST_F(ManifestTest, CompletesProblems) {
  Op op = ReadAll().ops[0];
  ASSERT_EQ(op.problems.size(), 2u);
  const OpProblem& first = op.problems[0];
  EXPECT_EQ(first.text, "T=bf16 zeta=[2, 3, 4, 4] scale=0.5");
  EXPECT_EQ(first.operands[0].dtype, DType::kBF16);
  EXPECT_FALSE(first.operands[1].present);
  EXPECT_EQ(first.operands[2].dims, (std::vector<int64_t>{6}));
  ASSERT_EQ(first.attributes.size(), 1u);
  EXPECT_EQ(first.attributes[0].attribute, 1);
  EXPECT_EQ(first.attributes[0].floats, (std::vector<double>{0.5}));
  const OpProblem& second = op.problems[1];
  EXPECT_EQ(second.operands[2].dims, (std::vector<int64_t>{1}));  // no leading dims: their product
  EXPECT_EQ(second.operands[1].dims, (std::vector<int64_t>{5, 4, 1}));
  EXPECT_EQ(second.attributes[0].integers, (std::vector<int64_t>{0}));
}

TEST_F(ManifestTest, HashesTheInterfaceAndNothingElse) {
  const std::string interface = kInterface, rest = std::string(kProblems) + kVariants;
  const uint64_t hash = Read(interface + rest).ops[0].interface_hash;
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = interface;
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return Read(text.replace(at, from.size(), to) + rest).ops[0].interface_hash;
  };
  EXPECT_EQ(Read(interface + kVariants).ops[0].interface_hash, hash) << "problems";
  EXPECT_EQ(changed("a demonstration", "something else"), hash);
  EXPECT_EQ(changed("K >= 1", "K>=(1)"), hash);
  EXPECT_EQ(changed("2e-6", "3e-6"), hash);
  EXPECT_NE(changed("K >= 1", "K >= 0"), hash);
  EXPECT_NE(changed("default = 2 ", "default = 3 "), hash);
  EXPECT_NE(changed("[\"f32\", \"bf16\"]", "[\"bf16\", \"f32\"]"), hash);
  EXPECT_NE(changed("aliases     = { y = \"zeta\" }", ""), hash);
  EXPECT_NE(changed("K / 2 + Q", "K / 2 - Q + Q + Q"), hash);
  EXPECT_NE(changed("bound = \"K\"", "bound = \"K + 1\""), hash);
}

TEST_F(ManifestTest, ChecksACopyOfUnequalShapesWhenThePlanIsMade) {
  std::string text = std::string(kInterface) + kVariants;
  const std::string from = "from = \"aux\"";
  text.replace(text.find(from), from.size(), "from = \"partial\"");
  const Program bytes = Read(text).ops[0].templates[0].steps[2].bytes;
  EXPECT_EQ(bytes.code.back().opcode, Opcode::kSelect);
  EXPECT_EQ(bytes.text, "(bytes of aux == bytes of partial) ? bytes of aux : 1 / 0");
}

TEST_F(ManifestTest, FindsManifestsInAFolderAndItsFolders) {
  Write("b/two.toml", "[family]\n");
  Write("a/one.toml", "[family]\n");
  Write("a/deep/three.toml", "[family]\n");
  Write("top.toml", "[family]\n");
  Write("a/notes.txt", "");
  auto names = [&](std::vector<std::string> paths) {
    Result<std::vector<std::string>> found = FindManifests(paths);
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    std::vector<std::string> out;
    for (const std::string& path : *found) out.push_back(fs::relative(path, folder_).string());
    return out;
  };
  EXPECT_EQ(names({folder_.string()}),
            (std::vector<std::string>{"a/one.toml", "b/two.toml", "top.toml"}));
  EXPECT_EQ(names({(folder_ / "b").string(), (folder_ / "a" / "one.toml").string()}),
            (std::vector<std::string>{"a/one.toml", "b/two.toml"}));
  for (const std::string& bad :
       {folder_.string() + "/none", (folder_ / "a" / "deep" / "x").string()}) {
    EXPECT_EQ(FindManifests({bad}).status().code(), StatusCode::kNotFound);
  }
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(FindManifests({(folder_ / "empty").string()}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FindManifests({}).status().code(), StatusCode::kNotFound);
}

// What may be a family is never left out without a word: a bundle without its ops would replace one
// that had them.
TEST_F(ManifestTest, NamesFoldersAndLinksThatCannotBeRead) {
  Write("a/one.toml", "[family]\n");
  Write("b/two.toml", "[family]\n");
  fs::permissions(folder_, fs::perms(0755));
  fs::permissions(folder_ / "b", fs::perms::none);
  for (const fs::path& path : {folder_, folder_ / "b"}) {
    const ::kbundle::testing::OrdinaryUser user;
    const Status status = FindManifests({path.string()}).status();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status.ToString();
    EXPECT_NE(status.message().find((folder_ / "b").string()), std::string::npos);
  }
  fs::permissions(folder_ / "b", fs::perms::owner_all);
  fs::create_symlink("/nowhere/three.toml", folder_ / "three.toml");
  fs::create_symlink("me@here.1234", folder_ / ".#two.toml");  // Emacs, while it is changed
  Result<std::vector<std::string>> found = FindManifests({folder_.string()});
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), 3u);
  EXPECT_EQ(fs::path(found->back()).filename(), "three.toml");
  EXPECT_NE(ReadManifest(found->back()).status().message().find("three.toml"), std::string::npos);
}

TEST_F(ManifestTest, AcceptsAFolderWithoutATrailingName) {
  Write("demo.toml", std::string(kInterface) + kVariants);
  fs::path before = fs::current_path();
  fs::current_path(folder_);
  Result<Family> family = ReadManifest("demo.toml");
  fs::current_path(before);
  ASSERT_TRUE(family.ok()) << family.status().ToString();
  EXPECT_EQ(family->directory, ".");
}

}  // namespace
}  // namespace kbundle::builder
