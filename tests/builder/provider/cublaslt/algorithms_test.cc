// Promise: a variant's points are the algorithms that files list for it, in an order that the lines
// alone decide; a damaged line is an error with its place; new answers replace old ones, no others.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "builder/compile/work.h"
#include "builder/manifest/manifest.h"
#include "builder/provider/cublaslt/algorithm_file.h"
#include "builder/provider/cublaslt/points.h"
#include "builder/tune/space.h"
#include "kbundle/provider/cublaslt.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

constexpr char kProducts[] = R"(
[family]
name = "demo"

[op.product]
types      = { T = ["bf16", "f32"] }
operands   = { a = "T[M, K]", b = "T[K, N]", bias = { shape = "T[N]", optional = true } }
attributes = { alpha = { type = "float", default = 1.0 }, gelu = { type = "bool", default = false } }
results    = { d = "T[M, N]" }
problems   = [ { T = "bf16", a = [64, 32], b = [32, 128] } ]

[[op.product.variant]]
name       = "lt"
provider   = "cublaslt"
algorithms = "algorithms"
types      = { T = ["bf16"] }
when       = ["align(a, b, d) % 16 == 0"]
workspace  = { scratch = "u8[WORKSPACE]" }
steps      = [ { product = "d", a = "a", b = "b", bias = "bias", m = "M", n = "N", k = "K",
                 gelu = "gelu", alpha = "alpha", workspace = "scratch" } ]
)";

ListedAlgorithm Listed(int id, int rank, const std::string& problem, const char* type = "bf16") {
  ListedAlgorithm listed;
  listed.op = "demo.product";
  listed.variant = "lt";
  listed.types = {type};
  listed.problem = nlohmann::json{{"operands", {{"a", problem}}}};
  listed.rank = rank;
  listed.target = "sm_90a";
  listed.device = "NVIDIA H200";
  listed.sm_count = 132;
  listed.cublas = 130100;
  listed.config = {id, 20, 1, 0, 0, 0, 36, 0, 3};
  listed.limit = 1 << 20;
  listed.waves = 0.75;
  listed.algorithm.data[0] = static_cast<uint64_t>(id);
  return listed;
}

class AlgorithmsTest : public ::testing::Test {
 protected:
  Family Read(const std::vector<ListedAlgorithm>& algorithms, const std::string& more = "") {
    std::filesystem::create_directories(dir_ / "algorithms");
    testing::WriteFile(dir_ / "demo.toml", kProducts);
    testing::WriteFile(dir_ / "algorithms/nvidia-h200.jsonl", AlgorithmsText(algorithms) + more);
    Result<Family> family = ReadManifest(dir_ / "demo.toml");
    EXPECT_TRUE(family.ok()) << family.status().message();
    return family.ok() ? *family : Family();
  }
  static std::vector<int64_t> Ids(const Family& family) {
    std::vector<int64_t> ids;
    for (const auto& point : family.ops.at(0).templates.at(0).points) {
      ids.push_back(point.tunables.at(1));
    }
    return ids;
  }

  testing::TempDir dir_;
};

TEST_F(AlgorithmsTest, ALineSurvivesBeingWrittenAndRead) {
  const ListedAlgorithm listed = Listed(66, 2, "bf16[4,4]");
  const auto read = ParseAlgorithm(listed.Line(), "here");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->Line(), listed.Line());
  EXPECT_EQ(read->algorithm.data[0], 66u);
  EXPECT_EQ(read->config[kLtConfigStages], 36);
}

TEST_F(AlgorithmsTest, DamagedLinesAreErrorsWithTheirPlace) {
  const std::string line = Listed(66, 0, "x").Line();
  for (const std::string& bad :
       {line.substr(0, line.size() / 2), std::string("<<<<<<< ours"), std::string("{}"),
        std::string(line).replace(line.find("\"rank\":0"), 8, "\"rank\":[]")}) {
    const auto parsed = ParseAlgorithms(line + "\n" + bad + "\n", "a.jsonl");
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_TRUE(parsed.status().message().starts_with("a.jsonl:2:")) << parsed.status().message();
  }
  testing::WriteFile(dir_ / "demo.toml", kProducts);
  std::filesystem::create_directories(dir_ / "algorithms");
  testing::WriteFile(dir_ / "algorithms/x.jsonl", "{}\n");
  const auto family = ReadManifest(dir_ / "demo.toml");
  ASSERT_FALSE(family.ok());
  EXPECT_NE(family.status().message().find("x.jsonl:1:"), std::string::npos);
}

TEST_F(AlgorithmsTest, PointsAreTheDistinctAlgorithmsBestRankFirst) {
  const Family family =
      Read({Listed(1, 3, "p"), Listed(2, 1, "p"), Listed(3, 0, "p"), Listed(4, 0, "q"),
            Listed(4, 0, "r"), Listed(1, 2, "q"), Listed(5, 0, "f", "f32")});
  EXPECT_EQ(Ids(family), (std::vector<int64_t>{4, 3, 2, 1})) << "f32 is not this variant's";
}

TEST_F(AlgorithmsTest, APointThatAsksStandsBeforeTheAlgorithmsAndHasNoCode) {
  std::string text = kProducts;
  text.replace(text.find("algorithms = \"algorithms\""), 0, "heuristic = true\n");
  testing::WriteFile(dir_ / "demo.toml", text);
  const auto bare = ReadManifest(dir_ / "demo.toml");
  ASSERT_TRUE(bare.ok()) << bare.status().message();
  EXPECT_EQ(Ids(*bare), (std::vector<int64_t>{0})) << "where nothing was listed, too";
  std::filesystem::create_directories(dir_ / "algorithms");
  testing::WriteFile(dir_ / "algorithms/a.jsonl", AlgorithmsText({Listed(4, 0, "p")}));
  const auto family = ReadManifest(dir_ / "demo.toml");
  ASSERT_TRUE(family.ok()) << family.status().message();
  EXPECT_EQ(Ids(*family), (std::vector<int64_t>{0, 4}));
  const auto& points = family->ops[0].templates[0].points;
  EXPECT_TRUE(points[0].asks && !points[1].asks);
  const std::vector<Family> families = {*family};
  const auto work = PlanWork(families, {*Target::Parse("sm_90a")});
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->variants.size(), 2u);
  EXPECT_EQ(work->units.size(), 1u) << "of the stored one";
}

TEST_F(AlgorithmsTest, AlgorithmsThatReadAlikeHaveIdsOfTheirOwn) {
  ListedAlgorithm twin = Listed(1, 0, "q");
  twin.algorithm.data[7] = 1;
  const Family family = Read({Listed(1, 0, "p"), twin});
  const auto& points = family.ops[0].templates[0].points;
  ASSERT_EQ(points.size(), 2u);
  EXPECT_NE(points[0].tunables, points[1].tunables);
}

TEST_F(AlgorithmsTest, WorkspaceIsTheLimitWhereSomeProblemNeedsAny) {
  ListedAlgorithm needs = Listed(2, 1, "q");
  needs.workspace = 512;
  const Family family = Read({Listed(1, 0, "p"), Listed(2, 1, "p"), needs});
  const auto& points = family.ops[0].templates[0].points;
  const auto names = AlgorithmTunables();
  const size_t place = std::find(names.begin(), names.end(), "WORKSPACE") - names.begin();
  EXPECT_EQ(points[0].tunables[place], 0);
  EXPECT_EQ(points[1].tunables[place], 1 << 20);
}

// The listed problem of kProducts, and another one.
TEST_F(AlgorithmsTest, AProblemIsTunedAmongTheAlgorithmsThatWereListedForIt) {
  ListedAlgorithm own = Listed(1, 1, "");
  own.problem = {{"operands", {{"a", "bf16[64,32]"}, {"b", "bf16[32,128]"}}},
                 {"attributes", {{"alpha", 1.0}, {"gelu", false}}}};
  Read({own, Listed(2, 0, "another"), Listed(3, 0, "another")});
  SpaceOptions options;
  options.paths = {dir_ / "demo.toml"};
  options.target = "sm_90a";
  options.cache_dir = dir_ / "cache";
  const auto space = TuneSpace::Open(options);
  ASSERT_TRUE(space.ok()) << space.status().message();
  const auto problems = (*space)->ListedProblems();
  ASSERT_TRUE(problems.ok()) << problems.status().message();
  ASSERT_EQ(problems->size(), 1u);
  ASSERT_EQ(problems->at(0).candidates.size(), 1u);
  EXPECT_NE(problems->at(0).candidates[0].id.find(",ID=1,"), std::string::npos);

  Problem unlisted = problems->at(0).problem;
  unlisted.attributes.at(0).number = 2.0;
  const auto other = (*space)->MakeProblem(unlisted);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->candidates.size(), 3u) << "for want of its own";
}

TEST_F(AlgorithmsTest, WhatAHeuristicWouldSayIsTestedButNeverTuned) {
  Read({Listed(1, 0, "another")});
  std::string text = kProducts;
  text.replace(text.find("algorithms = \"algorithms\""), 0, "heuristic = true\n");
  testing::WriteFile(dir_ / "demo.toml", text);
  for (const bool asking : {false, true}) {
    SpaceOptions options;
    options.paths = {dir_ / "demo.toml"};
    options.target = "sm_90a";
    options.cache_dir = dir_ / "cache";
    options.asking = asking;
    const auto space = TuneSpace::Open(options);
    ASSERT_TRUE(space.ok()) << space.status().message();
    const auto problems = (*space)->ListedProblems();
    ASSERT_TRUE(problems.ok()) << problems.status().message();
    EXPECT_EQ(problems->at(0).candidates.size(), asking ? 2u : 1u);
  }
}

TEST_F(AlgorithmsTest, UnitsHoldWhatTheLoaderReads) {
  const std::vector<Family> families = {Read({Listed(7, 0, "p")})};
  for (const char* target : {"sm_90a", "sm_100a"}) {
    const auto work = PlanWork(families, {*Target::Parse(target)});
    ASSERT_TRUE(work.ok());
    if (target != std::string("sm_90a")) {
      EXPECT_TRUE(work->variants.empty()) << "listed on another GPU";
      continue;
    }
    ASSERT_EQ(work->units.size(), 1u);
    StoredAlgorithm stored;
    ASSERT_EQ(work->units[0].extra_options.size(), sizeof stored);
    std::memcpy(&stored, work->units[0].extra_options.data(), sizeof stored);
    EXPECT_EQ(stored.cublas_version, 130100u);
    EXPECT_EQ(stored.algorithm[0], 7u);
    EXPECT_EQ(stored.config[kLtConfigId], 7);
    EXPECT_EQ(stored.reserved, 0);
  }
}

TEST_F(AlgorithmsTest, WithoutAFileThereIsNoVariantButAProbe) {
  testing::WriteFile(dir_ / "demo.toml", kProducts);
  const auto family = ReadManifest(dir_ / "demo.toml");
  ASSERT_TRUE(family.ok());
  EXPECT_TRUE(family->ops[0].templates[0].points.empty());
  const auto probe = ReadManifest(dir_ / "demo.toml", 4096);
  ASSERT_TRUE(probe.ok());
  ASSERT_EQ(probe->ops[0].templates[0].points.size(), 1u);
  EXPECT_EQ(probe->ops[0].templates[0].points[0].types, std::vector<DType>{DType::kBF16});
}

TEST_F(AlgorithmsTest, FreshAnswersReplaceThoseOfTheirProblemOnly) {
  ListedAlgorithm newer = Listed(9, 0, "p");
  ListedAlgorithm other_version = Listed(1, 0, "p");
  other_version.cublas = 120900;
  const auto merged = MergeAlgorithms(
      {Listed(1, 0, "p"), Listed(2, 1, "p"), Listed(3, 0, "q"), other_version}, {newer});
  EXPECT_EQ(AlgorithmsText(merged), AlgorithmsText({newer, Listed(3, 0, "q"), other_version}));
}

TEST_F(AlgorithmsTest, WhatACompilerWouldBeAskedIsRefused) {
  std::string text = kProducts;
  text.replace(text.find("algorithms = \"algorithms\""), 0,
               "flags = [\"-G\"]\ntunables = { ID = [1] }\n");
  testing::WriteFile(dir_ / "demo.toml", text);
  const auto family = ReadManifest(dir_ / "demo.toml");
  ASSERT_FALSE(family.ok());
  EXPECT_NE(family.status().message().find("has no `flags`"), std::string::npos);
  EXPECT_NE(family.status().message().find("has no `tunables`"), std::string::npos);
}

// Promise: `keep` prunes the dtypes, of algorithms and of points that ask; it knows no tunables.
TEST_F(AlgorithmsTest, KeepIsOfDtypesAlone) {
  std::string text = kProducts;
  text.replace(text.find("algorithms = \"algorithms\""), 0,
               "heuristic = true\nkeep = [\"T != f32\"]\n");
  text.replace(text.rfind("[\"bf16\"]"), 8, "[\"bf16\", \"f32\"]");
  testing::WriteFile(dir_ / "demo.toml", text);
  const auto pruned = ReadManifest(dir_ / "demo.toml");
  ASSERT_TRUE(pruned.ok()) << pruned.status().message();
  const auto& points = pruned->ops[0].templates[0].points;
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].types[0], DType::kBF16);
  text.replace(text.find("T != f32"), 8, "ID == 0");
  testing::WriteFile(dir_ / "demo.toml", text);
  const auto wrong = ReadManifest(dir_ / "demo.toml");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("ID"), std::string::npos) << wrong.status().message();
}

constexpr char kSide[] =
    ",\n { kernel = \"side<{T}>\", grid = [1], block = [32], args = [\"d\"] } ]\n";

TEST_F(AlgorithmsTest, AKernelBesideAProductIsOneUnitForAllPointsOfItsTypes) {
  std::string text = kProducts;
  text.replace(text.rfind(" ]"), 2, kSide);
  testing::WriteFile(dir_ / "demo.toml", text);
  const auto without = ReadManifest(dir_ / "demo.toml");
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.status().message().find("this variant of cublaslt has no kernels"),
            std::string::npos);
  text.replace(text.find("algorithms = \"algorithms\""), 0, "source = \"side.cu\"\n");
  testing::WriteFile(dir_ / "side.cu", "template <typename T> __global__ void side(T*) {}\n");
  std::filesystem::create_directories(dir_ / "algorithms");
  testing::WriteFile(dir_ / "algorithms/a.jsonl",
                     AlgorithmsText({Listed(1, 0, "p"), Listed(2, 0, "q")}));
  testing::WriteFile(dir_ / "demo.toml", text);
  const auto family = ReadManifest(dir_ / "demo.toml");
  ASSERT_TRUE(family.ok()) << family.status().message();
  const std::vector<Family> families = {*family};
  const auto work = PlanWork(families, {*Target::Parse("sm_90a")});
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  ASSERT_EQ(work->variants.size(), 2u);
  std::vector<std::string> kernels, sources;
  for (const Unit& unit : work->units) {
    kernels.insert(kernels.end(), unit.kernels.begin(), unit.kernels.end());
    sources.push_back(unit.source);
  }
  EXPECT_EQ(kernels, (std::vector<std::string>{"algorithm", "side<__nv_bfloat16>", "algorithm"}));
  EXPECT_EQ(sources, (std::vector<std::string>{"", "side.cu", ""}));
}

TEST_F(AlgorithmsTest, AProductNeedsItsMatricesAndExtents) {
  std::string text = kProducts;
  text.replace(text.find(", k = \"K\""), 9, "");
  text.replace(text.find("product = \"d\""), 13, "product = \"a\"");
  testing::WriteFile(dir_ / "demo.toml", text);
  const auto family = ReadManifest(dir_ / "demo.toml");
  ASSERT_FALSE(family.ok());
  EXPECT_NE(family.status().message().find("needs the key 'k'"), std::string::npos);
  EXPECT_NE(family.status().message().find("operand 'a' must not be written"), std::string::npos);
}

}  // namespace
}  // namespace kbundle::builder
