// Promise: what a child learned becomes kernel steps whose bytes are those that were recorded, or
// the build fails and says for which parameter of which problem; points launched alike share a
// template.
#include "builder/provider/cute/launch.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "builder/compile/learned.h"
#include "builder/library.h"
#include "builder/manifest/manifest.h"
#include "builder/provider/cute/problems.h"
#include "builder/provider/cute/prove.h"
#include "builder/provider/cute/request.h"
#include "builder/provider/provider.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

constexpr char kCuteManifest[] = R"toml(
[family]
name = "demo"

[op.run]
types      = { T = ["bf16", "f32"] }
attributes = { scale = { type = "float" } }
operands   = { x = "T[R, W]" }
results    = { y = "T[R, W]" }
require    = ["R >= 1", "W >= 1"]

[[op.run.variant]]
name      = "tiles"
provider  = "cute"
source    = "run.py"
targets   = ["sm_90a"]
tunables  = { TILE = [64, 128] }
when      = ["W % TILE == 0"]
let       = { HALF = "W / 2" }
workspace = { partial = "f32[R]" }
steps     = [
  { memset = "partial" },
  { cute = "forward", args = [{ tensor = "x", shape = ["R", "HALF"], strides = ["W", 1], at = "HALF" }, "y",
                              { tensor = "partial", shape = ["R"] }, "f32(scale)", "i32(W)"] },
]
)toml";

const Json kLaunches = Json::parse(R"json([
  {"grid": ["R", "1", "1"], "block": ["128", "1", "1"], "cluster": [], "shared": "1024", "programmatic": false,
   "parameters": [
    {"bytes": "000000000000000000000000000000002a000000",
     "fields": [{"offset": 0, "tensor": "x", "at": "HALF"}, {"offset": 8, "type": "u32", "value": "R * 3"}]},
    {"bytes": "0000000000000000", "fields": [{"offset": 0, "tensor": "partial", "at": "0"}]},
    {"bytes": "00000000", "fields": [{"offset": 0, "type": "f32", "float": "scale", "factor": 1.4426950216293335}]}]},
  {"grid": ["ceil_div(R, 4)"], "block": ["32"], "cluster": ["2", "1", "1"], "shared": "0", "programmatic": true,
   "parameters": [{"bytes": "00000000", "fields": [{"offset": 0, "type": "i32", "value": "W"}]}]}
])json");

class CuteLaunchTest : public ::testing::Test {
 protected:
  CuteLaunchTest() {
    WriteText(folder_ / "demo.toml", kCuteManifest);
    WriteText(folder_ / "run.py", "");
    families_.push_back(*ReadManifest(folder_ / "demo.toml"));
    work_ = *PlanWork(families_, {*Target::Parse("sm_90a")});
  }
  const Template& variant() const { return families_[0].ops[0].templates[0]; }
  const Step& step() const { return variant().steps[1]; }
  std::vector<Step> Steps(const Json& launches = kLaunches) const {
    return CuteSteps(launches, families_[0].ops[0], variant(), step()).value();
  }

  // What the host function would have left, by the rules of kLaunches.
  static Json Recorded(const std::vector<CuteProblem>& problems) {
    Json all = Json::array();
    for (const CuteProblem& problem : problems) {
      const Bindings& at = problem.drawn.bindings;
      const int64_t rows = at.symbols[0], width = at.symbols[1];
      std::string first(20 + 8 + 4, '\0');
      const int64_t size = SizeOf(at.types[0]);
      const uint64_t x = problem.addresses[0] + static_cast<uint64_t>(width / 2 * size);
      const auto three = static_cast<uint32_t>(rows * 3);
      const float scaled = static_cast<float>(at.attributes[0].number) * 1.4426950216293335f;
      std::memcpy(first.data(), &x, 8);
      std::memcpy(first.data() + 8, &three, 4);
      first[16] = 42;
      std::memcpy(first.data() + 20, &problem.addresses[2], 8);
      std::memcpy(first.data() + 28, &scaled, 4);
      std::string second(4, '\0');
      const auto wide = static_cast<int32_t>(width);
      std::memcpy(second.data(), &wide, 4);
      all.push_back({{{"grid", {rows, 1, 1}},
                      {"block", {128, 1, 1}},
                      {"cluster", {0, 0, 0}},
                      {"shared", 1024},
                      {"programmatic", false},
                      {"params", HexOf(first)}},
                     {{"grid", {(rows + 3) / 4}},
                      {"block", {32}},
                      {"cluster", {2, 1, 1}},
                      {"shared", 0},
                      {"programmatic", true},
                      {"params", HexOf(second)}}});
    }
    return all;
  }
  Refuted Prove(const Json& launches, const CuteSubject& subject,
                const std::vector<CuteProblem>& problems) const {
    std::vector<int> numbers(problems.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    return ProveLaunches(Steps(launches), subject, step(), problems, numbers, Recorded(problems))
        .value();
  }
  static std::string HexOf(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
  }

  Folder folder_;
  std::vector<Family> families_;
  Work work_;
  CuteDraws draws_;
};

TEST_F(CuteLaunchTest, AStepStandsForItsFunctionUntilItIsCompiled) {
  ASSERT_EQ(work_.variants.size(), 4u);
  ASSERT_EQ(work_.units.size(), 4u);
  EXPECT_EQ(work_.variants[0].kernels, (std::vector<std::string>{"", "forward"}));
  const Json request = Json::parse(work_.units[0].extra_options);
  EXPECT_EQ(request["function"], "forward");
  EXPECT_EQ(request["tunables"], (Json{{"TILE", 64}}));
  EXPECT_EQ(request["arguments"][0],
            Json::parse(R"({"name": "x", "dtype": "bf16", "shape": [null, null],
                            "strides": [null, 1], "null": false})"));
  EXPECT_EQ(request["arguments"][3], (Json{{"type", "f32"}}));
  const auto atoms = request["atoms"].get<std::vector<std::string>>();
  for (const char* atom : {"R", "W", "HALF"}) {
    EXPECT_NE(std::find(atoms.begin(), atoms.end(), atom), atoms.end()) << atom;
  }
}

TEST_F(CuteLaunchTest, LaunchesBecomeStepsWithStructs) {
  const std::vector<Step> steps = Steps();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].kernel, "forward.1");
  EXPECT_EQ(steps[1].kernel, "forward.2");
  ASSERT_EQ(steps[0].args.size(), 3u);
  EXPECT_EQ(steps[0].args[0].kind, ArgKind::kStruct);
  EXPECT_EQ(steps[0].structs[0].bytes.size(), 20u);
  EXPECT_EQ(steps[0].structs[0].fields[0].arg.kind, ArgKind::kOperand);
  EXPECT_EQ(steps[0].args[1].kind, ArgKind::kRegion);  // alone in its parameter
  EXPECT_EQ(steps[0].args[2].kind, ArgKind::kStruct);  // a factor stands in structs only
  EXPECT_EQ(steps[1].args[0].text, "i32(W)");
  EXPECT_TRUE(steps[1].programmatic);
  EXPECT_EQ(steps[1].cluster.size(), 3u);
}

TEST_F(CuteLaunchTest, RecordedBytesThatAreComputedBytesAreProved) {
  for (const Unit& unit : work_.units) {
    const CuteSubject subject = SubjectOf(unit);
    const auto problems = DrawProblems(subject, step(), 3, 600, &draws_).value();
    ASSERT_EQ(problems.size(), 600u);
    EXPECT_TRUE(Prove(kLaunches, subject, problems).by.empty());
  }
}

TEST_F(CuteLaunchTest, TheFirstDifferenceIsNamedWithItsProblem) {
  const CuteSubject subject = SubjectOf(work_.units[0]);
  const auto problems = DrawProblems(subject, step(), 3, 600, &draws_).value();
  const auto why = [&](const char* from, const char* to) {
    std::string text = kLaunches.dump();
    text.replace(text.find(from), std::strlen(from), to);
    return Prove(Json::parse(text), subject, problems).first.message();
  };
  const std::string first = problems[0].drawn.text;
  for (const auto& [from, to, words] :
       {std::tuple("R * 3", "R * 4", "kernel 'forward.1': parameter 0 at offset 8 is "),
        std::tuple("2a000000", "2b000000", "parameter 0 at offset 16 is 2a000000 by"),
        std::tuple("HALF", "1", "parameter 0 at offset 0 is "),
        std::tuple("1.4426950216293335", "1.25", "parameter 2 at offset 0 is "),
        std::tuple("\"R\"", "\"R + 1\"", "the grid is "),
        std::tuple("\"1024\"", "\"2048\"", "its shared memory is 1024 by"),
        std::tuple("ceil_div(R, 4)", "ceil_div(R, 8)", "kernel 'forward.2': the grid is ")}) {
    const std::string message = why(from, to);
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("for the problem R = "), std::string::npos) << message;
  }
  EXPECT_NE(why("R * 3", "R * 4").find(first), std::string::npos);
}

// CuTe DSL's host code writes the first half of a tensor map: in the other is what its stack held.
TEST_F(CuteLaunchTest, TheSecondHalfOfATensorMapIsNobodys) {
  Json launches = Json::array({kLaunches[0]});
  std::string bytes(128, '\0');
  bytes[63] = 42;
  bytes[100] = 7;
  launches[0]["parameters"] = Json::array({{{"bytes", HexOf(bytes)}, {"fields", Json::array()}}});
  Json& fields = launches[0]["parameters"][0]["fields"];
  fields.push_back(kLaunches[0]["parameters"][0]["fields"][0]);
  fields.push_back({{"offset", 72}, {"type", "u32"}, {"value", "R * 3"}});
  const StructArg map = Steps(launches)[0].structs[0];
  EXPECT_EQ(map.fields.size(), 1u);
  EXPECT_EQ(map.bytes[63], 42);
  EXPECT_EQ(map.bytes.substr(64), std::string(64, '\0'));

  const CuteSubject subject = SubjectOf(work_.units[0]);
  const auto problems = DrawProblems(subject, step(), 3, 600, &draws_).value();
  std::vector<int> numbers(problems.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  for (const int place : {64, 127, 63}) {
    Json recorded = Recorded(problems);
    for (Json& launched : recorded) {
      const std::string x = launched[0]["params"].get<std::string>().substr(0, 16);
      std::string held(128, '\0');
      held[63] = 42;
      held[static_cast<size_t>(place)] = 99;
      launched = Json::array({launched[0]});
      launched[0]["params"] = x + HexOf(held).substr(16);
    }
    const Refuted refuted =
        ProveLaunches(Steps(launches), subject, step(), problems, numbers, recorded).value();
    EXPECT_EQ(refuted.by.empty(), place >= 64) << place;
  }
}

TEST_F(CuteLaunchTest, PointsOfOneLaunchShareATemplateAndOthersHaveTheirOwn) {
  std::vector<Object> objects(work_.units.size());
  for (size_t i = 0; i < objects.size(); ++i) {
    Json launches = kLaunches;
    if (i == 1) launches[0]["shared"] = "4096";  // one point of four
    objects[i].code = "cubin";
    objects[i].learned = Json{{"launches", launches}, {"packages", {{"fa", "4.0", "BSD"}}}}.dump();
  }
  const LearnedWork learned = WithLearnedSteps(work_, objects).value();
  const Op& op = *learned.work.ops[0].op;
  ASSERT_EQ(op.templates.size(), 2u);
  for (const Template& made : op.templates) {
    EXPECT_EQ(made.name, "tiles");
    ASSERT_EQ(made.steps.size(), 3u);
    EXPECT_EQ(made.steps[0].kind, StepKind::kMemset);
  }
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < learned.work.variants.size(); ++i) {
    const VariantUse& use = learned.work.variants[i];
    indices.push_back(use.template_index);
    EXPECT_EQ(use.rank, work_.variants[i].rank);
    EXPECT_EQ(use.kernels, (std::vector<std::string>{"", "forward.1", "forward.2"}));
    EXPECT_EQ(use.units[1], work_.variants[i].units[1]);
    EXPECT_EQ(use.units[2], work_.variants[i].units[1]);
  }
  EXPECT_EQ(indices, (std::vector<uint32_t>{0, 1, 0, 0}));
  EXPECT_EQ(learned.provenance.at("fa licence"), "BSD, of 4.0");
  EXPECT_EQ(families_[0].ops[0].templates[0].steps.size(), 2u);  // as it was
}

TEST_F(CuteLaunchTest, DamagedFactsAreAnError) {
  std::vector<Object> objects(work_.units.size());
  for (const char* text : {"no json", "[]", "{}", R"({"launches": [{"grid": 3}]})",
                           R"({"launches": [{"grid": ["UNKNOWN"], "block": []}]})"}) {
    for (Object& object : objects) object.learned = text;
    EXPECT_FALSE(WithLearnedSteps(work_, objects).ok()) << text;
  }
}

TEST(CuteManifest, MistakesAreNamedWhereTheyStand) {
  const auto why = [](const char* from, const char* to) {
    Folder folder;
    std::string text = kCuteManifest;
    text.replace(text.find(from), std::strlen(from), to);
    WriteText(folder / "demo.toml", text);
    WriteText(folder / "run.py", "");
    return ReadManifest(folder / "demo.toml").status().message();
  };
  for (const auto& [from, to, words] :
       {std::tuple("cute = \"forward\"", "cute = \"a b\"", "'a b' is no name of a Python function"),
        std::tuple("\"i32(W)\"", "\"i32[2](W)\"", "'W' is no array attribute"),
        std::tuple("{ tensor = \"partial\", shape = [\"R\"] }", "\"partial\"",
                   "how is 'partial' to be seen?"),
        std::tuple("strides = [\"W\", 1]", "strides = [\"W\"]",
                   "2 sizes in `shape` and 1 in `strides`"),
        std::tuple("args = [{", "grid = [1], args = [{", "a step of CuTe DSL has no `grid`"),
        std::tuple("shape = [\"R\", \"HALF\"]", "shape = [\"R\", \"HALVE\"]", "unknown"),
        std::tuple("source    =", "max_spill = 4\nsource    =", "max_spill")}) {
    EXPECT_NE(why(from, to).find(words), std::string::npos) << why(from, to);
  }
}

}  // namespace
}  // namespace kbundle::builder
