// A build may be spread: its plan says of each unit what it is made of, each is made by itself into
// a store, and nothing is made where sources, tools or a plan are others than they were.
#include <nlohmann/json.hpp>

#include "builder/pipeline/build_fixture.h"
#include "builder/pipeline/compile_unit.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

class SpreadTest : public BuildTest {
 protected:
  std::string PlanText() {
    options_.plan = true;
    const auto report = Run();
    options_.plan = false;
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? report->plan : "{}";
  }
  Json MakePlan() { return Json::parse(PlanText()); }
  // As a process elsewhere would: out of the file.
  Result<UnitReport> Make(const Json& plan, uint64_t number) {
    WriteText(folder_ / "plan.json", plan.dump());
    auto unit = ReadPlannedUnit(folder_ / "plan.json", number);
    if (!unit.ok()) return unit.status();
    unit->options.cache_dir = options_.cache_dir;
    return CompileOneUnit(unit->options, unit->wanted, reporter_);
  }
  std::string Refusal(const std::string& plan, uint64_t number) {
    WriteText(folder_ / "plan.json", plan);
    const auto unit = ReadPlannedUnit(folder_ / "plan.json", number);
    return unit.ok() ? "" : unit.status().message();
  }
};

TEST_F(SpreadTest, UnitsMadeOneByOneAreTheBuild) {
  const Json plan = MakePlan();
  ASSERT_EQ(plan["units"].size(), 5u);
  EXPECT_EQ(plan["missing"], 5);
  options_.no_compile = true;
  const auto refused = Run();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("lacks 5 of 5"), std::string::npos);
  EXPECT_NE(refused.status().message().find("kbundle compile-unit"), std::string::npos);
  for (size_t i = 0; i < 5; ++i) {
    const auto made = Make(plan, i);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_TRUE(made->compiled);
    EXPECT_EQ(made->key, plan["units"][i]["key"]);
    EXPECT_GT(made->bytes, 0u);
  }
  EXPECT_FALSE(Make(plan, 3)->compiled) << "it is there";
  const auto built = Run();
  ASSERT_TRUE(built.ok()) << built.status().ToString();
  EXPECT_EQ(built->compiled, 0);
  const std::string spread = ReadText(options_.output);
  options_.no_compile = false;
  options_.cache_dir = folder_ / "another cache";
  ASSERT_TRUE(Run().ok());
  EXPECT_TRUE(ReadText(options_.output) == spread);
}

TEST_F(SpreadTest, APlanSaysWhatEachUnitIsMadeOf) {
  const Json plan = MakePlan();
  bool host = false;
  for (const Json& unit : plan["units"]) {
    for (const char* name : {"the list of kernels", "flags", "compiler"}) {
      EXPECT_NE(unit["inputs"].dump().find(name), std::string::npos);
    }
    if (unit["compiler"] != "c++") continue;
    host = true;
    EXPECT_EQ(unit["environment"][0], "KBUNDLE_CXX");
    EXPECT_NE(unit["compiler_command"].get<std::string>().find("tiny_host.cc"), std::string::npos);
    for (const Json& input : unit["inputs"]) {
      if (input["name"] != "part.h") continue;
      EXPECT_EQ(input["file"], "part.h");
      EXPECT_EQ(input["sha256"],
                ToHex(Sha256Of(kHostHeader, std::string_view(kHostHeader).size())));
    }
  }
  EXPECT_TRUE(host);
  EXPECT_EQ(PlanText(), PlanText());
}

TEST_F(SpreadTest, RefusesOtherSourcesByName) {
  const Json plan = MakePlan();
  Edit("part.h", "x * factor", "factor * x");
  Edit("tiny.cuh", "#pragma once", "#pragma once\n#include \"more.cuh\"");
  WriteText(folder_ / "lib/more.cuh", "");
  int refused = 0;
  for (size_t i = 0; i < plan["units"].size(); ++i) {
    const auto made = Make(plan, i);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), StatusCode::kFailedPrecondition);
    const std::string text = made.status().message();
    const bool host = plan["units"][i]["compiler"] == "c++";
    refused += text.find(host ? "part.h changed" : "more.cuh is new") != std::string::npos;
    EXPECT_EQ(text.find("compiler changed"), std::string::npos) << text;
  }
  EXPECT_EQ(refused, 5);
}

TEST_F(SpreadTest, RefusesAnotherToolkitThoughTheKeyIsTheSame) {
  Json plan = MakePlan();
  Json& inputs = plan["units"][0]["inputs"];
  ASSERT_EQ(inputs.back()["name"], "the toolkit's headers");
  inputs.back()["digest"] = std::string(64, 'a');
  const auto made = Make(plan, 0);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("the toolkit's headers changed"), std::string::npos);
}

TEST_F(SpreadTest, NamesUnitsOfOneNameApartByKey) {
  const std::string host = std::string(kManifest).substr(std::string(kManifest).rfind("[[op"));
  Edit("tiny.toml", "steps = [{ kernel = \"scale_{T}\"",
       "flags = [\"-DONE=1\"]\nsteps = [{ kernel = \"scale_{T}\"");
  WriteText(folder_ / "lib/tiny.toml",
            ReadText(folder_ / "lib/tiny.toml") + Replaced(host, "\"loop\"", "\"again\""));
  options_.targets = {"x86-64-v3"};
  const Json plan = MakePlan();
  ASSERT_EQ(plan["units"].size(), 2u);
  EXPECT_EQ(plan["units"][0]["unit"], plan["units"][1]["unit"]);
  const auto unsaid = CompileOneUnit(options_, {plan["units"][0]["unit"], "", {}}, reporter_);
  ASSERT_FALSE(unsaid.ok());
  EXPECT_NE(unsaid.status().message().find(plan["units"][1]["key"].get<std::string>()),
            std::string::npos);
  for (size_t i : {0u, 1u}) EXPECT_TRUE(Make(plan, i).ok());
  options_.no_compile = true;
  EXPECT_TRUE(Run().ok());
}

TEST_F(SpreadTest, AKeyAloneFindsItsUnit) {
  const Json plan = MakePlan();
  const auto made = CompileOneUnit(options_, {"", plan["units"][4]["key"], {}}, reporter_);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->label, plan["units"][4]["unit"]);
  EXPECT_FALSE(CompileOneUnit(options_, {"", std::string(64, '0'), {}}, reporter_).ok());
}

TEST_F(SpreadTest, ReportsWhatTheCompilerSaysAndKeepsNothing) {
  Edit("part.h", "x * factor", "no_such_name");
  const Json plan = MakePlan();
  for (size_t i = 0; i < plan["units"].size(); ++i) {
    if (plan["units"][i]["compiler"] != "c++") continue;
    EXPECT_EQ(Make(plan, i).status().code(), StatusCode::kInvalidArgument);
    ASSERT_FALSE(reporter_.failures.empty());
    EXPECT_NE(reporter_.failures.back().find("no_such_name"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache/v1/objects"));
}

TEST_F(SpreadTest, NeedsAPlaceToKeepIt) {
  const Json plan = MakePlan();
  WriteText(folder_ / "a file", "");
  options_.cache_dir = folder_ / "a file";
  EXPECT_EQ(Make(plan, 0).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SpreadTest, ADamagedPlanIsAnErrorAndNeverACrash) {
  const std::string whole = PlanText();
  ASSERT_EQ(Refusal(whole, 0), "");
  int refused = 0;
  const size_t steps = 400, step = whole.size() / steps;
  for (size_t i = 0; i < steps; ++i) {
    EXPECT_NE(Refusal(whole.substr(0, i * step), 0), "") << i * step;
    std::string flipped = whole;
    flipped[i * step] = static_cast<char>(flipped[i * step] ^ (1 << i % 8));
    refused += !Refusal(flipped, 0).empty();
  }
  EXPECT_GT(refused, 0);
}

TEST_F(SpreadTest, SaysWhatIsWrongWithAPlan) {
  const Json whole = MakePlan();
  const auto with = [&](const char* key, Json value) {
    Json plan = whole;
    plan["units"][1][key] = std::move(value);
    return Refusal(plan.dump(), 1);
  };
  const auto says = [](const std::string& text, const std::string& what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_NE(text.find("reading the plan "), std::string::npos) << text;
  };
  says(with("manifests", {"../../lib/tiny.toml"}), "leaves the folder by '..'");
  says(with("manifests", "tiny.toml"), "\"manifests\" is no list");
  says(with("manifests", Json::array()), "\"manifests\" is empty");
  says(with("manifests", {std::string(5000, 'a')}), "at most 4096 bytes");
  says(with("target", "sm_90q"), "sm_90q");
  says(with("target", 90), "\"target\" is no text");
  says(with("unit", ""), "unit 1: \"unit\" is empty");
  says(with("key", "abc"), "\"key\" is no SHA-256");
  says(with("inputs", Json::object()), "\"inputs\" is no list");
  says(with("inputs", {{{"name", "a"}}}), "there is no \"digest\"");
  says(with("inputs", {1}), "an input is no object");
  says(with("inputs", {{{"digest", "a"}}}), "there is no \"name\"");
  says(Refusal(whole.dump(), 5), "there is no unit 5: the plan has 5");
  Json other = whole;
  other["build_plan"] = 2;
  says(Refusal(other.dump(), 0), "version 2, this kbundle reads 1");
  other = whole;
  other["units"] = Json::object();
  says(Refusal(other.dump(), 0), "\"units\" is no list");
  other["units"] = {3};
  says(Refusal(other.dump(), 0), "it is no object");
  other["units"] = Json::array();
  says(Refusal(other.dump(), 0), "the plan has 0");
  says(Refusal("", 0), "parse error");
  says(Refusal("[]", 0), "it is no build plan");
  says(Refusal("{\"units\": [{}]}", 0), "it is no build plan");
  says(Refusal(std::string(100000, '['), 0), "nested deeper");
  std::string million = "{\"build_plan\": 1, \"units\": [{}";
  for (int i = 1; i < 1000000; ++i) million += ",{}";
  says(Refusal(million + "]}", 999999), "there is no \"providers\"");
  EXPECT_EQ(ReadPlannedUnit(folder_ / "none.json", 0).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadPlannedUnit(folder_.path(), 0).ok());
}

}  // namespace
}  // namespace kbundle::builder
