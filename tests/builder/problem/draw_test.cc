// Promise: drawn problems are legal at their point, differ, are the same for the same seed, and
// where there is none the message says which condition stands in the way.
#include "builder/problem/draw.h"

#include <set>

#include "builder/library.h"
#include "builder/manifest/manifest.h"

namespace kbundle::builder {
namespace {

constexpr char kDrawManifest[] = R"toml(
[family]
name = "demo"

[op.attend]
types      = { T = ["bf16", "f32"] }
attributes = { scale = { type = "float" }, mask = { type = "enum", one_of = ["none", "causal"], default = "none" } }
operands   = { q = "T[B, H, S, D]", k = "T[B, G, S, D]", bias = { shape = "T[S]", optional = true } }
results    = { o = "T[B, H, S, D]" }
require    = ["H % G == 0"]

[[op.attend.variant]]
name     = "tiles"
provider = "cuda"
source   = "tiles.cu"
tunables = { HEAD = [96, 192] }
let      = { GROUP = "H / G" }
when     = ["D == HEAD", "GROUP == 4", "present(bias)", "align(q) % 8 == 0", "mask == 'causal'"]
steps    = [{ kernel = "k", grid = ["S"], block = [128], args = ["o", "q", "k"] }]

[[op.attend.variant]]
name     = "none"
provider = "cuda"
source   = "tiles.cu"
when     = ["D == 3 && D == 4"]
steps    = [{ kernel = "k", grid = ["S"], block = [128], args = ["o", "q", "k"] }]
)toml";

class DrawTest : public ::testing::Test {
 protected:
  DrawTest() {
    WriteText(folder_ / "demo.toml", kDrawManifest);
    WriteText(folder_ / "tiles.cu", "");
    family_ = *ReadManifest(folder_ / "demo.toml");
  }
  const Op& op() const { return family_.ops[0]; }

  Folder folder_;
  Family family_;
};

TEST_F(DrawTest, EveryProblemIsLegalAndHasTheLeastAlignment) {
  const Template& variant = op().templates[0];
  for (const Template::Point& point : variant.points) {
    ProblemDrawer drawer(op(), variant, point, 7);
    for (int i = 0; i < 100; ++i) {
      const Result<DrawnProblem> drawn = drawer.Next();
      ASSERT_TRUE(drawn.ok()) << drawn.status().ToString();
      const std::vector<int64_t>& sizes = drawn->bindings.symbols;  // B H S D G
      EXPECT_EQ(sizes[3], point.tunables[0]);
      EXPECT_EQ(sizes[1], 4 * sizes[4]) << drawn->text;
      EXPECT_TRUE(drawn->bindings.tensors[2].present);
      EXPECT_EQ(drawn->bindings.attributes[1].integers[0], 1);
      EXPECT_EQ(drawn->alignment, 8);
      EXPECT_EQ(drawn->bindings.lets, (std::vector<int64_t>{4}));
    }
  }
}

TEST_F(DrawTest, SizesDifferByOrdersOfMagnitude) {
  const Template& variant = op().templates[0];
  ProblemDrawer drawer(op(), variant, variant.points[0], 1);
  std::set<int64_t> batches, lengths;
  for (int i = 0; i < 200; ++i) {
    const DrawnProblem drawn = drawer.Next().value();
    batches.insert(drawn.bindings.symbols[0]);
    lengths.insert(drawn.bindings.symbols[2]);
  }
  for (const std::set<int64_t>& sizes : {batches, lengths}) {
    EXPECT_GT(sizes.size(), 60u);
    EXPECT_LE(*sizes.begin(), 4);
    EXPECT_GE(*sizes.rbegin(), 10000);
  }
}

TEST_F(DrawTest, TheSameSeedGivesTheSameProblems) {
  const Template& variant = op().templates[0];
  ProblemDrawer a(op(), variant, variant.points[0], 5), b(op(), variant, variant.points[0], 5),
      other(op(), variant, variant.points[0], 6);
  std::string first, second, third;
  for (int i = 0; i < 20; ++i) {
    first += a.Next()->text;
    second += b.Next()->text;
    third += other.Next()->text;
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);
}

TEST_F(DrawTest, WhereNothingIsLegalTheConditionIsNamed) {
  const Template& variant = op().templates[1];
  ProblemDrawer drawer(op(), variant, variant.points[0], 5);
  const Result<DrawnProblem> drawn = drawer.Next();
  ASSERT_FALSE(drawn.ok());
  EXPECT_NE(drawn.status().message().find("'D == 3 && D == 4' of `when` refuses most"),
            std::string::npos)
      << drawn.status().ToString();
}

}  // namespace
}  // namespace kbundle::builder
