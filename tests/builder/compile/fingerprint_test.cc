// Promise: a variant's fingerprint changes when what it runs does, and with nothing else, so that a
// changed source makes only its own candidates' records stale.
#include "builder/compile/fingerprint.h"

#include "builder/library.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/pack/embed_records.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

constexpr char kTwoKernels[] = R"toml(
[family]
name = "demo"

[op.copy]
operands = { x = "f32[N]" }
results  = { y = "f32[N]" }

[[op.copy.variant]]
name     = "plain"
provider = "cuda"
source   = "plain.cu"
steps    = [{ kernel = "plain", grid = ["N"], block = [128], args = ["y", "x", "i64(N)"] }]

[[op.copy.variant]]
name     = "wide"
provider = "cuda"
source   = "wide.cu"
tunables = { VEC = [2, 4] }
let      = { PARTS = "ceil_div(N, VEC)" }
when     = ["N % VEC == 0"]
steps    = [{ kernel = "wide<{VEC}>", grid = ["PARTS"], block = [128], args = ["y", "x", "i64(N)"] }]
)toml";

class FingerprintTest : public ::testing::Test {
 protected:
  using Prints = std::map<std::string, std::string>;

  // `changed`: the unit of this label has other code.
  Prints Of(const std::string& manifest, const std::string& changed = "") {
    WriteText(folder_ / "demo.toml", manifest);
    for (const char* source : {"plain.cu", "wide.cu"}) WriteText(folder_ / source, "");
    std::vector<Family> families = {*ReadManifest(folder_ / "demo.toml")};
    const Work work = *PlanWork(families, {*Target::Parse("sm_90a"), *Target::Parse("sm_80")});
    std::vector<Object> objects(work.units.size());
    for (size_t i = 0; i < objects.size(); ++i) {
      std::string code = work.units[i].label;
      if (code == changed) code += " changed";
      objects[i].sha256 = Sha256Of(code.data(), code.size());
    }
    for (const Unit& unit : work.units) labels_.push_back(unit.label);
    return FingerprintsOf(work, objects);
  }

  static std::string Replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    KB_CHECK(at != text.npos);
    return text.replace(at, from.size(), to);
  }

  // The variants of `after` that `before` does not have so, without "demo.copy/".
  static std::vector<std::string> Differing(const Prints& before, const Prints& after) {
    std::vector<std::string> ids;
    for (const auto& [id, print] : after) {
      const auto found = before.find(id);
      if (found == before.end() || found->second != print) ids.push_back(id.substr(10));
    }
    return ids;
  }

  Folder folder_;
  std::vector<std::string> labels_;
};

using Ids = std::vector<std::string>;

TEST_F(FingerprintTest, TellsVariantsApartAndRepeats) {
  const Prints prints = Of(kTwoKernels);
  ASSERT_EQ(prints.size(), 6u);
  std::set<std::string> distinct;
  for (const auto& [id, print] : prints) {
    EXPECT_EQ(print.size(), 16u);
    distinct.insert(print);
  }
  EXPECT_EQ(distinct.size(), 6u);
  EXPECT_EQ(Of(kTwoKernels), prints);
}

TEST_F(FingerprintTest, ChangesWithTheCodeOfItsOwnUnitsOnly) {
  const Prints before = Of(kTwoKernels);
  ASSERT_EQ(labels_.size(), 6u);
  for (const std::string& label : Ids(labels_)) {
    EXPECT_EQ(Differing(before, Of(kTwoKernels, label)).size(), 1u) << label;
  }
}

TEST_F(FingerprintTest, ChangesWithHowKernelsAreLaunched) {
  const Prints before = Of(kTwoKernels);
  const Ids wide = {"wide[VEC=2]@sm_80", "wide[VEC=2]@sm_90a", "wide[VEC=4]@sm_80",
                    "wide[VEC=4]@sm_90a"};
  const auto differing = [&](const char* from, const char* to) {
    return Differing(before, Of(Replaced(kTwoKernels, from, to)));
  };
  EXPECT_EQ(differing(R"(grid = ["N"], block = [128])", R"(grid = ["N"], block = [256])"),
            (Ids{"plain@sm_80", "plain@sm_90a"}));
  EXPECT_EQ(differing("ceil_div(N, VEC)", "ceil_div(N, 2 * VEC)"), wide);
  EXPECT_EQ(differing(R"(grid = ["PARTS"])", R"(grid = ["PARTS", "1"])"), wide);
  EXPECT_EQ(differing("VEC = [2, 4]", "VEC = [2, 8]"),
            (Ids{"wide[VEC=8]@sm_80", "wide[VEC=8]@sm_90a"}));
}

TEST_F(FingerprintTest, IgnoresWhatDoesNotRun) {
  const Prints before = Of(kTwoKernels);
  EXPECT_EQ(Of(std::string("# a comment\n") + kTwoKernels), before);
  EXPECT_EQ(Of(Replaced(kTwoKernels, "[op.copy]\n", "[op.copy]\nsummary = \"a copy\"\n")), before);
  // Where a variant is legal is no part of what it does.
  EXPECT_EQ(Of(Replaced(kTwoKernels, "N % VEC == 0", "N % (2 * VEC) == 0")), before);
}

}  // namespace
}  // namespace kbundle::builder
