// Promise: a variant that cuDNN plans has one point for each listed problem that it takes and each
// version; its tunables are all that makes the problem what it is; and the planner is asked for
// exactly that problem's graph.
#include "builder/manifest/manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "builder/compile/work.h"
#include "builder/library.h"
#include "builder/model/family.h"
#include "builder/provider/cudnn/points.h"
#include "builder/provider/cudnn/request.h"
#include "builder/provider/provider.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr char kGraphs[] = R"toml(
[family]
name = "demo"

[op.mix]
summary    = "a demonstration"
types      = { T = ["f16", "bf16", "f32"] }
operands   = { q = "T[B, H, S, D]", bias = { shape = "T[B, H, S, S]", optional = true }, extra = { shape = "f32[E]", optional = true } }
attributes = { scale = { type = "float" }, mode = { type = "enum", one_of = ["none", "causal"], default = "none" }, window = { type = "int", default = -1 }, flag = { type = "bool", default = false } }
results    = { o = "T[B, H, S, D]", stats = { shape = "f32[B, H, S]", when = "flag" } }
problems   = [
  { T = "f16", q = [1, 2, 128, 64], scale = 0.5 },
  { T = "f16", q = [1, 2, 128, 64], scale = 0.25 },
  { T = "bf16", q = [1, 2, 128, 64], bias = true, scale = 0.5, mode = "causal", window = 32, flag = true },
  { T = "f32", q = [1, 2, 128, 64], scale = 0.5 },
  { T = "f16", q = [1, 2, 128, 64], extra = [7], scale = 0.5 },
]

[[op.mix.variant]]
name     = "planned"
provider = "cudnn"
targets  = ["sm_90a"]
profile  = "h200"
cudnn    = ["9.19.0"]
when     = ["T != f32"]
let      = { SD = "S * D" }
steps    = [{
  graph   = "sdpa",
  tensors = {
    q     = { tensor = "q", dims = ["B", "H", "S", "D"], strides = ["H * SD", "SD", "D", "1"] },
    bias  = { tensor = "bias", dims = ["B", "H", "S", "S"], strides = ["H * S * S", "S * S", "S", "1"], when = "mode == 'causal'" },
    o     = { tensor = "o", dims = ["B", "H", "S", "D"], strides = ["H * SD", "SD", "D", "1"] },
    stats = { tensor = "stats", dims = ["B", "H", "S", "1"], strides = ["H * S", "S", "1", "1"] },
  },
  scalars = { scale = "f32(scale)" },
  options = {
    causal = { value = "mode", texts = { none = "none", causal = "top_left" } },
    window = { value = "window", when = "window >= 0" },
    deterministic = "flag",
    plain = "mode",
  },
}]
)toml";

constexpr char kQ[] =
    R"(q     = { tensor = "q", dims = ["B", "H", "S", "D"], strides = ["H * SD", "SD", "D", "1"] },)";

class ManifestGraph : public ::testing::Test {
 protected:
  Op Read(const std::string& text = kGraphs) {
    WriteText(folder_ / "demo.toml", text);
    Result<Family> family = ReadManifest(folder_ / "demo.toml");
    EXPECT_TRUE(family.ok()) << family.status().ToString();
    return family.ok() ? family->ops.at(0) : Op();
  }
  static Json RequestOf(const Op& op, size_t point) {
    const Template& variant = op.templates.at(0);
    const Result<std::string> text =
        GraphRequest(op, variant, variant.points.at(point), variant.steps.at(0),
                     Target::Parse("sm_90a").value());
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    return text.ok() ? Json::parse(*text) : Json();
  }

  Folder folder_;
};

TEST_F(ManifestGraph, ItsTunablesAreWhatMakesTheProblemAndTheVersionComesLast) {
  const Op op = Read();
  // Not E, which only an operand binds that the graph does not use; not scale, which a call gives.
  EXPECT_EQ(op.templates.at(0).tunables,
            (std::vector<std::string>{"B", "H", "S", "D", "mode", "window", "flag", "bias", "PLAN",
                                      "CUDNN"}));
}

TEST_F(ManifestGraph, EachProblemThatItTakesIsOnePoint) {
  const Op op = Read();
  const auto& points = op.templates.at(0).points;
  // The second differs from the first by a number given at the call; the fourth is f32, which `when`
  // refuses; the fifth has an operand that the graph would not see.
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].types, (std::vector<DType>{DType::kF16}));
  EXPECT_EQ(points[0].tunables, (std::vector<int64_t>{1, 2, 128, 64, 0, -1, 0, 0, 0, 91900}));
  EXPECT_EQ(points[0].problem, 0);
  EXPECT_EQ(points[1].types, (std::vector<DType>{DType::kBF16}));
  EXPECT_EQ(points[1].tunables, (std::vector<int64_t>{1, 2, 128, 64, 1, 32, 1, 1, 0, 91900}));
  EXPECT_EQ(points[1].problem, 2);
}

TEST_F(ManifestGraph, TwoVersionsAreTwoPointsEach) {
  const Op op = Read(Replaced(kGraphs, "[\"9.19.0\"]", "[\"9.19.0\", \"9.23.2\"]"));
  const auto& points = op.templates.at(0).points;
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].tunables.back(), 91900);
  EXPECT_EQ(points[1].tunables.back(), 92302);
  EXPECT_EQ(points[1].problem, points[0].problem);
  EXPECT_EQ(points[3].problem, 2);
}

TEST_F(ManifestGraph, APlanBeyondTheFirstIsAPointThatAsksForAllPlans) {
  const Op op =
      Read(Replaced(kGraphs, "[\"9.19.0\"]", "[\"9.19.0\"]\nplans = 2\nmax_workspace = 4096"));
  const auto& points = op.templates.at(0).points;
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[1].tunables, (std::vector<int64_t>{1, 2, 128, 64, 0, -1, 0, 0, 1, 91900}));
  EXPECT_EQ(points[1].problem, points[0].problem);
  EXPECT_EQ(RequestOf(op, 0)["request"]["engines"], "first");
  const Json second = RequestOf(op, 1);
  EXPECT_EQ(second["request"]["engines"], "all");
  EXPECT_EQ(second["plan"], 1);
  EXPECT_EQ(second["max_workspace"], 4096);
}

TEST_F(ManifestGraph, AProblemThatIsAddedLaterIsAPointAsWell) {
  Op op = Read();
  OpProblem more = op.problems[0];
  more.operands[0].dims = {3, 2, 128, 64};
  op.problems.push_back(more);
  op.problems.push_back(more);
  SetProblemPoints(&op);
  ASSERT_EQ(op.templates[0].points.size(), 3u);
  EXPECT_EQ(op.templates[0].points[2].tunables[0], 3);
  EXPECT_EQ(op.templates[0].points[2].problem, 5);
}

TEST_F(ManifestGraph, ItWantsAlignedTensorsAndOnlyOperandsThatItKnows) {
  std::vector<std::string> texts;
  const Op op = Read();
  for (const Program& rule : op.templates.at(0).when) texts.push_back(rule.text);
  const auto has = [&](const std::string& text) {
    return std::find(texts.begin(), texts.end(), text) != texts.end();
  };
  EXPECT_TRUE(has("T != f32"));
  EXPECT_TRUE(has("!present(extra)"));
  EXPECT_TRUE(has("align(q, bias, o, stats) % 16 == 0"));
}

TEST_F(ManifestGraph, TheRequestHasWhatIsPresentAndWhatCounts) {
  const Json request = RequestOf(Read(), 0);
  EXPECT_EQ(request["cudnn"], 91900);
  EXPECT_EQ(request["profile"]["multiProcessorCount"], 132);
  EXPECT_EQ(request["request"], Json::parse(R"({
    "node": "sdpa", "sm_version": 90, "engines": "first", "io_dtype": "f16",
    "tensors": {
      "q": {"uid": 1, "dims": [1, 2, 128, 64], "strides": [16384, 8192, 64, 1], "dtype": "f16"},
      "o": {"uid": 3, "dims": [1, 2, 128, 64], "strides": [16384, 8192, 64, 1], "dtype": "f16"}},
    "scale": {"uid": 5}, "causal": "none", "deterministic": false, "plain": "none"})"))
      << request["request"].dump(2);
}

TEST_F(ManifestGraph, TheRequestHasOptionalTensorsAndOptionsWhereTheyAreGiven) {
  const Json request = RequestOf(Read(), 1);
  EXPECT_EQ(request["request"], Json::parse(R"({
    "node": "sdpa", "sm_version": 90, "engines": "first", "io_dtype": "bf16",
    "tensors": {
      "q": {"uid": 1, "dims": [1, 2, 128, 64], "strides": [16384, 8192, 64, 1], "dtype": "bf16"},
      "bias": {"uid": 2, "dims": [1, 2, 128, 128], "strides": [32768, 16384, 128, 1],
               "dtype": "bf16"},
      "o": {"uid": 3, "dims": [1, 2, 128, 64], "strides": [16384, 8192, 64, 1], "dtype": "bf16"},
      "stats": {"uid": 4, "dims": [1, 2, 128, 1], "strides": [256, 128, 1, 1], "dtype": "f32"}},
    "scale": {"uid": 5}, "causal": "top_left", "window": 32, "deterministic": true,
    "plain": "causal"})"))
      << request["request"].dump(2);
}

TEST_F(ManifestGraph, ATensorWhoseConditionFailsIsLeftOut) {
  const Op op = Read(Replaced(kGraphs, "when = \"mode == 'causal'\" }", "when = \"window < 0\" }"));
  EXPECT_FALSE(RequestOf(op, 1)["request"]["tensors"].contains("bias"));
}

TEST_F(ManifestGraph, ATensorMayBeginInsideAnOperandAndBeTakenForAnotherType) {
  const Op op =
      Read(Replaced(Replaced(kGraphs, "stats = { tensor = \"stats\",",
                             "stats = { tensor = \"stats\", type = \"i32\","),
                    "q     = { tensor = \"q\",", "q = { tensor = \"q\", at = \"S / 16\","));
  EXPECT_EQ(RequestOf(op, 1)["request"]["tensors"]["stats"]["dtype"], "i32");
  EXPECT_EQ(RequestOf(op, 1)["request"]["tensors"]["q"]["dtype"], "bf16");
  const Arg& q = op.templates.at(0).steps.at(0).args.at(0);
  EXPECT_EQ(q.text, "q at S / 16");
  EXPECT_EQ(q.program.text, "S / 16");
}

TEST_F(ManifestGraph, ATensorThatBeginsWherePlansDoNotReachIsARefusedProblem) {
  const Op op =
      Read(Replaced(kGraphs, "q     = { tensor = \"q\",", "q = { tensor = \"q\", at = 4,"));
  const std::string words =
      "tensor q of the graph begins at element 4 (q at 4), which is no multiple of 16 bytes";
  EXPECT_EQ(RequestOf(op, 0)["refused"], words);
  // A single number needs no more than its own size.
  const std::string one =
      R"(q = { tensor = "q", at = 4, type = "f32", dims = ["1"], strides = ["1"] },)";
  EXPECT_FALSE(RequestOf(Read(Replaced(kGraphs, kQ, one)), 0).contains("refused"));
}

TEST_F(ManifestGraph, AFloatThatThePlanFixesMakesProblemsThatDifferInIt) {
  const Op op = Read(Replaced(kGraphs, "plain = \"mode\"", "dropout = \"f32(scale)\""));
  const auto& points = op.templates.at(0).points;
  ASSERT_EQ(points.size(), 3u);  // scale 0.5, 0.25, and the one with bias
  EXPECT_EQ(op.templates.at(0).tunables.at(4), "scale");
  EXPECT_EQ(points[0].tunables.at(4), 0x3f000000);
  EXPECT_EQ(points[1].tunables.at(4), 0x3e800000);
  EXPECT_EQ(RequestOf(op, 1)["request"]["dropout"], 0.25);
}

TEST_F(ManifestGraph, ARaggedTensorNamesTheTensorOfItsOffsets) {
  const Op op = Read(Replaced(kGraphs, "\"D\", \"1\"] },\n    bias",
                              "\"D\", \"1\"], ragged = \"o\" },\n    bias"));
  const Json tensors = RequestOf(op, 0)["request"]["tensors"];
  EXPECT_EQ(tensors["q"]["ragged"], "o");
  EXPECT_FALSE(tensors["o"].contains("ragged"));
}

// What stands in the source must not move the plans, so only the kernel's unit knows it.
TEST_F(ManifestGraph, AKernelBesideTheGraphIsOneUnitForAllProblemsOfItsTypes) {
  std::string text = Replaced(kGraphs, "let      =", "source = \"side.cu\"\nlet      =");
  text = Replaced(
      text, "steps    = [{",
      "steps    = [{ kernel = \"side<{T}>\", grid = [1], block = [32], args = [\"o\"] }, {");
  WriteText(folder_ / "side.cu", "template <typename T> __global__ void side(T*) {}\n");
  Family family;
  family.name = "demo";
  family.ops = {Read(text)};
  const std::vector<Family> families = {family};
  const Result<Work> work = PlanWork(families, {Target::Parse("sm_90a").value()});
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  ASSERT_EQ(work->variants.size(), 2u);
  std::vector<std::string> kernels, sources;
  for (const Unit& unit : work->units) {
    kernels.insert(kernels.end(), unit.kernels.begin(), unit.kernels.end());
    sources.push_back(unit.source);
  }
  EXPECT_EQ(kernels,
            (std::vector<std::string>{"side<__half>", "sdpa", "side<__nv_bfloat16>", "sdpa"}));
  EXPECT_EQ(sources, (std::vector<std::string>{"side.cu", "", "side.cu", ""}));
}

// And it alone is what the compiler holds against the fields of its struct.
TEST_F(ManifestGraph, AKernelBesideTheGraphTakesAStruct) {
  std::string text = Replaced(kGraphs, "let      =", "source = \"side.cu\"\nlet      =");
  text =
      Replaced(text, "steps    = [{",
               "steps    = [{ kernel = \"side<{T}>\", grid = [1], block = [32], args = [{ struct = "
               "\"Side<{T}>\", fields = [\"o\"] }] }, {");
  WriteText(folder_ / "side.cu",
            "template <typename T> struct Side { T* o; };\n"
            "template <typename T> __global__ void side(Side<T>) {}\n");
  Family family;
  family.name = "demo";
  family.ops = {Read(text)};
  const std::vector<Family> families = {family};
  const Result<Work> work = PlanWork(families, {Target::Parse("sm_90a").value()});
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  for (const Unit& unit : work->units) {
    std::string checks;
    for (const StructCheck& check : unit.struct_checks) checks += check.line;
    const bool beside = unit.source == "side.cu";
    EXPECT_EQ(checks.find("Side<__") != std::string::npos, beside) << unit.label << checks;
  }
}

}  // namespace
}  // namespace kbundle::builder
