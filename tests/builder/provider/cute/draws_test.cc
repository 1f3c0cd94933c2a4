// Promise: the steps of a point get the same problems, drawn once however many ask at a time; a step
// with a `when` of its own gets problems for which it is taken.
#include "builder/provider/cute/draws.h"

#include <future>

#include "builder/library.h"
#include "builder/manifest/manifest.h"

namespace kbundle::builder {
namespace {

constexpr char kDrawnManifest[] = R"toml(
[family]
name = "demo"

[op.rows]
types    = { T = ["bf16", "f32"] }
operands = { x = "T[R, W]" }
results  = { y = "T[R, W]" }

[[op.rows.variant]]
name     = "rows"
provider = "cute"
source   = "run.py"
let      = { HALF = "W / 2" }
when     = ["W % 2 == 0", "HALF <= 4096"]
steps    = [{ cute = "first", args = ["x", "y"] }, { cute = "second", args = ["x", "y"] },
            { cute = "long", when = "R > 1000", args = ["x", "y"] }]
)toml";

class CuteDrawsTest : public ::testing::Test {
 protected:
  CuteDrawsTest() {
    WriteText(folder_ / "demo.toml", kDrawnManifest);
    WriteText(folder_ / "run.py", "");
    family_ = *ReadManifest(folder_ / "demo.toml");
    const Template& variant = family_.ops[0].templates[0];
    subject_ = SubjectAt(family_.ops[0], variant, variant.points[0], variant.steps[0]);
  }
  const Step& step(size_t number) const { return family_.ops[0].templates[0].steps[number]; }
  static std::string TextOf(const Result<std::vector<DrawnProblem>>& drawn) {
    if (!drawn.ok()) return drawn.status().ToString();
    std::string text;
    for (const DrawnProblem& one : *drawn) text += one.text + "\n";
    return text;
  }

  Folder folder_;
  Family family_;
  CuteSubject subject_;
};

TEST_F(CuteDrawsTest, ThreadsThatAskAtOnceGetWhatOneGets) {
  CuteDraws alone, together;
  const std::string wanted = TextOf(alone.First(subject_, step(0), 203));
  std::vector<std::future<std::string>> asked;
  for (size_t i = 0; i < 6; ++i) {
    asked.push_back(std::async(
        std::launch::async, [&, i] { return TextOf(together.First(subject_, step(i % 2), 203)); }));
  }
  for (std::future<std::string>& one : asked) EXPECT_EQ(one.get(), wanted);
}

TEST_F(CuteDrawsTest, FewerAreTheFirstOfMore) {
  CuteDraws draws, others;
  const std::string few = TextOf(draws.First(subject_, step(0), 100));
  EXPECT_EQ(TextOf(draws.First(subject_, step(0), 300)).substr(0, few.size()), few);
  EXPECT_EQ(TextOf(others.First(subject_, step(0), 300)).substr(0, few.size()), few);
}

TEST_F(CuteDrawsTest, ProblemsAreThoseForWhichTheStepIsTaken) {
  CuteDraws draws;
  const auto all = draws.First(subject_, step(1), 200), some = draws.First(subject_, step(2), 200);
  ASSERT_TRUE(all.ok() && some.ok());
  int small = 0;
  for (const DrawnProblem& one : *all) small += one.bindings.symbols[0] <= 1000 ? 1 : 0;
  EXPECT_GT(small, 20);
  for (const DrawnProblem& one : *some) EXPECT_GT(one.bindings.symbols[0], 1000) << one.text;
}

TEST_F(CuteDrawsTest, PointsOfOtherTypesGetTheirOwn) {
  CuteDraws draws;
  ASSERT_EQ(family_.ops[0].templates[0].points.size(), 2u);
  CuteSubject other = subject_;
  other.point = family_.ops[0].templates[0].points[1];
  EXPECT_NE(TextOf(draws.First(subject_, step(0), 50)), TextOf(draws.First(other, step(0), 50)));
}

// More points than are kept at a time: what was let go is drawn again, the same.
TEST_F(CuteDrawsTest, WhatWasLetGoIsDrawnAgain) {
  CuteDraws draws;
  const std::string first = TextOf(draws.First(subject_, step(0), 40));
  std::vector<Step> steps(40, step(2));
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].when->text += std::string(i + 1, ' ');
    ASSERT_TRUE(draws.First(subject_, steps[i], 8).ok());
  }
  EXPECT_EQ(TextOf(draws.First(subject_, step(0), 40)), first);
}

}  // namespace
}  // namespace kbundle::builder
