// Promise: kernels of a step that has a source of its own are compiled by themselves, once for all
// that launch them.
#include <cstring>
#include <set>

#include "builder/library.h"
#include "builder/manifest/manifest.h"
#include "builder/provider/provider.h"

namespace kbundle::builder {
namespace {

// "small" and "large" end with the same kernels.
constexpr char kEndsAlike[] = R"toml(
[family]
name = "demo"

[op.run]
types    = { T = ["bf16", "f32"] }
operands = { x = "T[R, W]" }
results  = { y = "f32[]" }

[[op.run.variant]]
name      = "small"
provider  = "cuda"
source    = "rows.cu"
portable  = true
tunables  = { VEC = [1, 2] }
workspace = { sums = "f32[R]" }
steps     = [
  { kernel = "rows<{T}, {VEC}>", grid = ["R"], block = [32], args = ["x", "sums", "i64(W)"] },
  { memset = "y", value = 0 },
  { kernel = "total", source = "total.cu", grid = [1], block = [32],
    args = ["sums", "y", "i64(R)"] },
  { kernel = "finish", source = "total.cu", grid = [1], block = [32], args = ["y"] },
]

[[op.run.variant]]
name     = "large"
extends  = "small"
portable = false
tunables = { VEC = [4, 8] }
)toml";

class StepSourceTest : public ::testing::Test {
 protected:
  Result<Family> Read(const std::string& manifest) {
    WriteText(folder_ / "demo.toml", manifest);
    WriteText(folder_ / "rows.cu", "extern \"C\" __global__ void rows() {}\n");
    WriteText(folder_ / "total.cu", "extern \"C\" __global__ void total(int n = KB_VEC) {}\n");
    return ReadManifest(folder_ / "demo.toml");
  }
  static std::string With(const char* from, const char* to) {
    std::string text = kEndsAlike;
    text.replace(text.find(from), std::strlen(from), to);
    return text;
  }

  Folder folder_;
};

TEST_F(StepSourceTest, OneUnitServesAllThatLaunchItsKernels) {
  const std::vector<Family> families = {*Read(kEndsAlike)};
  const Work work = *PlanWork(families, {*Target::Parse("sm_80"), *Target::Parse("sm_90a")});
  std::set<uint32_t> shared;
  for (const VariantUse& use : work.variants) {
    const Unit& rows = work.units[use.units[0]];
    const Unit& total = work.units[use.units[2]];
    EXPECT_EQ(rows.source, "rows.cu");
    EXPECT_EQ(rows.kernels, std::vector<std::string>{use.kernels[0]});
    EXPECT_EQ(use.units[1], kNoUnit);
    EXPECT_EQ(total.source, "total.cu");
    EXPECT_EQ(total.kernels, (std::vector<std::string>{"total", "finish"}));
    EXPECT_EQ(use.units[3], use.units[2]);
    EXPECT_NE(rows.label, total.label);
    EXPECT_EQ(rows.target.ToString(), total.target.ToString());
    shared.insert(use.units[2]);
  }
  EXPECT_EQ(work.variants.size(), 2u * 2 * 4);
  EXPECT_EQ(shared.size(), 2u);
  EXPECT_EQ(work.units.size(), 2u * (2 * 4 + 1));
}

TEST_F(StepSourceTest, PortableCodeOfEachSourceIsOneUnitOfTheOp) {
  const std::vector<Family> families = {*Read(kEndsAlike)};
  const Work work = *PlanWork(families, {*Target::Parse("portable")});
  ASSERT_EQ(work.units.size(), 2u);
  EXPECT_EQ(work.units[0].kernels.size(), 2u);  // one of each type
  EXPECT_EQ(work.units[1].kernels, (std::vector<std::string>{"total", "finish"}));
}

TEST_F(StepSourceTest, ASourceThatIsNotThereIsNamedAtItsStep) {
  const auto missing = Read(With("\"total.cu\"", "\"totals.cu\""));
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("demo.toml:20:"), std::string::npos)
      << missing.status().message();
  EXPECT_NE(missing.status().message().find("source 'totals.cu' is not there"), std::string::npos);
}

// nvcc gives tunables to every source of the variant.
TEST_F(StepSourceTest, AMacroOfAStepsSourceIsAUse) {
  std::string text = With("<{T}, {VEC}>", "");
  const char portable[] = "portable  = true";
  text.replace(text.find(portable), std::strlen(portable), "compiler  = \"nvcc\"");
  EXPECT_TRUE(Read(text).ok()) << Read(text).status().message();
  text.replace(text.find("nvcc"), 4, "nvrtc");
  EXPECT_FALSE(Read(text).ok());
}

}  // namespace
}  // namespace kbundle::builder
