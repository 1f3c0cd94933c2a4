// Promise: points and variants that agree in what a step says that it depends on have one unit,
// proved by problems of the conditions that it relies on; what it depends on without saying so is an
// error at the step.
#include "builder/provider/cute/share.h"

#include <cstring>
#include <set>

#include "builder/library.h"
#include "builder/manifest/manifest.h"
#include "builder/provider/cute/draws.h"
#include "builder/provider/provider.h"

namespace kbundle::builder {
namespace {

// Both variants clear rows of TILE; masks of 64 columns have others.
constexpr char kSharedManifest[] = R"toml(
[family]
name = "demo"

[op.run]
types      = { T = ["bf16", "f32"] }
attributes = { masked = { type = "bool" }, shift = { type = "int" } }
operands   = { x = "T[R, W]" }
results    = { y = "T[R, W]" }

[[op.run.variant]]
name      = "plain"
provider  = "cute"
source    = "run.py"
targets   = ["sm_90a"]
tunables  = { WIDE = [64, 128], MASK = [0, 1] }
when      = ["WIDE == W", "MASK == (masked ? 1 : 0)", "R <= 4096", "shift >= 0"]
let       = { TILE = "WIDE == 64 && MASK == 1 ? 32 : WIDE", PADDED = "ceil_div(R, TILE) * TILE", ALL = "R * W" }
workspace = { sums = "f32[PADDED]", others = "f32[R]" }
steps     = [
  { cute = "clear", source = "clear.py", uses = ["WIDE", "TILE", "ALL"], relies_on = ["WIDE == W", "R <= 4096"],
    args = [{ tensor = "sums", shape = ["PADDED"] }] },
  { cute = "run", args = ["x", { tensor = "sums", shape = ["PADDED"] }, { tensor = "others", shape = ["R"] }, "y"] },
]

[[op.run.variant]]
name    = "shifted"
extends = "plain"
source  = "shifted.py"
when    = ["shift < 0", "MASK == (masked ? 1 : 0)", "R <= 4096", "WIDE == W"]
let     = { MORE = "R + 1" }
)toml";

class CuteShareTest : public ::testing::Test {
 protected:
  CuteShareTest() {
    Write(kSharedManifest);
    families_.push_back(*ReadManifest(folder_ / "demo.toml"));
    work_ = *PlanWork(families_, {*Target::Parse("sm_90a")});
  }
  void Write(const std::string& manifest) {
    WriteText(folder_ / "demo.toml", manifest);
    for (const char* source : {"run.py", "shifted.py", "clear.py"}) WriteText(folder_ / source, "");
  }
  std::string WhyNot(const char* from, const char* to) {
    std::string text = kSharedManifest;
    text.replace(text.find(from), std::strlen(from), to);
    Write(text);
    return ReadManifest(folder_ / "demo.toml").status().message();
  }

  Folder folder_;
  std::vector<Family> families_;
  Work work_;
};

TEST_F(CuteShareTest, WhoAgreesInWhatAStepDependsOnHasOneUnit) {
  std::map<std::string, std::set<uint32_t>> of;  // by type, width and rows of a tile
  for (const VariantUse& use : work_.variants) {
    const Template& variant = work_.ops[0].op->templates[use.template_index];
    const Template::Point& point = variant.points[use.point];
    const int64_t tile = FixedLets(variant, point)[0];
    EXPECT_EQ(tile, point.tunables[0] == 64 && point.tunables[1] == 1 ? 32 : point.tunables[0]);
    of[fmt::format("{} {} {}", Name(point.types[0]), point.tunables[0], tile)].insert(use.units[0]);
    EXPECT_EQ(work_.units[use.units[0]].source, "clear.py");
    EXPECT_EQ(work_.units[use.units[1]].source, variant.source);
  }
  EXPECT_EQ(of.size(), 6u);
  for (const auto& [what, units] : of) EXPECT_EQ(units.size(), 1u) << what;
  EXPECT_EQ(work_.variants.size(), 16u);
  EXPECT_EQ(work_.units.size(), 6u + 16u);
}

TEST_F(CuteShareTest, AUnitKnowsOfItsVariantWhatItsStepSays) {
  for (const Unit& unit : work_.units) {
    const CuteSubject subject = SubjectOf(unit);
    if (unit.step->kernel != "clear") {
      EXPECT_EQ(subject.variant.when.size(), 4u);
      EXPECT_EQ(subject.taken.size(), 2u);
      continue;
    }
    ASSERT_EQ(subject.variant.when.size(), 2u);
    EXPECT_EQ(subject.variant.when[1].text, "R <= 4096");
    EXPECT_EQ(subject.point.tunables[1], 0);  // MASK, which it does not know
    EXPECT_EQ(subject.taken[1].first, "TILE");
    EXPECT_EQ(subject.variant.regions[1].name, "");
    for (const char* word : {"MASK", "masked", "others", "MORE"}) {
      EXPECT_EQ(unit.extra_options.find(word), std::string::npos) << word;
    }
    for (const char* word : {"\"ALL\"", "\"PADDED\"", "\"TILE\"", "\"sums\""}) {
      EXPECT_NE(unit.extra_options.find(word), std::string::npos) << word;
    }
  }
}

TEST_F(CuteShareTest, ItsProblemsMeetWhatItReliesOnAndNoMore) {
  CuteDraws draws;
  for (const Unit& unit : work_.units) {
    if (unit.step->kernel != "clear") continue;
    const CuteSubject subject = SubjectOf(unit);
    const auto drawn = draws.First(subject, *unit.step, 200);
    ASSERT_TRUE(drawn.ok()) << drawn.status().ToString();
    int masked = 0, shifted = 0;
    for (const DrawnProblem& one : *drawn) {
      EXPECT_EQ(one.bindings.symbols[1], subject.taken[0].second) << one.text;  // W is WIDE
      EXPECT_LE(one.bindings.symbols[0], 4096) << one.text;
      const int64_t tile = subject.taken[1].second;
      EXPECT_EQ(one.bindings.lets[1], (one.bindings.symbols[0] + tile - 1) / tile * tile);
      masked += one.text.find("masked = 1") != std::string::npos ? 1 : 0;
      shifted += one.text.find("shift = -") != std::string::npos ? 1 : 0;
    }
    EXPECT_GT(masked, 20);
    EXPECT_GT(shifted, 5);
  }
}

TEST_F(CuteShareTest, WhatAStepDependsOnWithoutSayingSoIsNamed) {
  for (const auto& [from, to, words] :
       {std::tuple(R"("WIDE", "TILE", "ALL")", R"("WIDE", "ALL")",
                   "'clear' depends on MASK, by 'TILE', and does not say so"),
        std::tuple(R"(["WIDE == W", "R <= 4096"],)", R"x(["MASK == (masked ? 1 : 0)"],)x",
                   "'clear' depends on MASK, by 'MASK == (masked ? 1 : 0)', and does not say so"),
        std::tuple(R"(relies_on = ["WIDE == W", "R <= 4096"],)", "", "'clear' depends on MASK"),
        std::tuple(R"("R <= 4096"],)", R"("R <= 4097"],)",
                   "'R <= 4097' is no condition of the variant's `when`"),
        std::tuple(R"("ALL"])", R"("EVERY"])", "'EVERY' is no tunable and no let of the variant"),
        std::tuple("clear.py", "cleared.py", "source 'cleared.py' is not there"),
        std::tuple("shape = [\"PADDED\"] }] },\n", "shape = [\"PADDED * (MASK + 1)\"] }] },\n",
                   "'clear' depends on MASK, by 'PADDED * (MASK + 1)'")}) {
    EXPECT_NE(WhyNot(from, to).find(words), std::string::npos) << WhyNot(from, to);
  }
  EXPECT_NE(WhyNot(R"("WIDE", "TILE", "ALL")", R"("ALL")").find("demo.toml:21:"), std::string::npos)
      << WhyNot(R"("WIDE", "TILE", "ALL")", R"("ALL")");
}

}  // namespace
}  // namespace kbundle::builder
