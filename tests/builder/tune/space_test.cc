// TuneSpace: candidates are compiled into the store in the order in which they are wanted, and one
// that its compiler refuses costs itself alone.
#include "builder/tune/space.h"

#include "builder/library.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

constexpr char kBroken[] = R"toml(
[[op.scale.variant]]
name = "broken"
provider = "host"
source = "broken_host.cc"
types = { T = ["f32"] }
steps = [{ kernel = "scale_{T}", range = "N", grain = "4096", args = ["y", "x", "f32(factor)"] }]
)toml";

class Space : public ::testing::Test {
 protected:
  Space() {
    WriteLibrary(folder_ / "tiny");
    WriteText(folder_ / "tiny/tiny.toml", std::string(kManifest) + kBroken);
    WriteText(folder_ / "tiny/broken_host.cc", "int three = \"three\";\n");
  }
  std::unique_ptr<TuneSpace> Open() {
    SpaceOptions options;
    options.paths = {folder_ / "tiny"};
    options.target = "x86-64-v2";
    options.cache_dir = folder_ / "cache";
    auto space = TuneSpace::Open(options);
    EXPECT_TRUE(space.ok()) << space.status().message();
    return std::move(*space);
  }
  static uint32_t Named(const TuneSpace& space, const std::string& name) {
    for (uint32_t use = 0; use < space.work().variants.size(); ++use) {
      if (space.LabelOf(use).find("/" + name + "[") != std::string::npos) return use;
    }
    ADD_FAILURE() << "no variant " << name;
    return 0;
  }

  const Folder folder_;
};

TEST_F(Space, PacksWhatCompilesAndSaysWhyTheRestHasNoCode) {
  const auto space = Open();
  const uint32_t good = Named(*space, "loop"), broken = Named(*space, "broken");
  EXPECT_EQ(space->FailureOf(good), "not compiled");
  ASSERT_TRUE(space->StartCompiling({broken, good}).ok());
  const auto path = space->PackedBundle({broken, good});
  ASSERT_TRUE(path.ok()) << path.status().message();
  const auto bundle = Bundle::Open(*path);
  ASSERT_TRUE(bundle.ok());
  EXPECT_EQ(IndexOf(**bundle).variants()->size(), 1u);
  EXPECT_EQ(space->FailureOf(good), "");
  EXPECT_NE(space->FingerprintOf(good), "");
  EXPECT_EQ(space->DigestsOf(good).size(), 1u);
  EXPECT_NE(space->FailureOf(broken).find("broken_host.cc failed"), std::string::npos);
  EXPECT_NE(space->FailureOf(broken).find("to see it again: "), std::string::npos);
  EXPECT_NE(space->CompileCommand(broken).find("broken_host.cc"), std::string::npos);
  EXPECT_EQ(space->PackedBundle({broken}).status().code(), StatusCode::kNotFound);
}

TEST_F(Space, TakesFromTheStoreWhatIsThere) {
  {
    const auto space = Open();
    const uint32_t good = Named(*space, "loop");
    ASSERT_TRUE(space->StartCompiling({good}).ok());
    ASSERT_TRUE(space->PackedBundle({good}).ok());
  }
  const auto again = Open();
  const uint32_t good = Named(*again, "loop");
  ASSERT_TRUE(again->StartCompiling({good}).ok());
  EXPECT_EQ(again->FailureOf(good), "");  // known before anything could be compiled
}

}  // namespace
}  // namespace kbundle::builder
