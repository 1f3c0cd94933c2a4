// Every short manifest of same/, which says things once, means exactly what the long one beside it
// says: interfaces, problems, points, conditions and steps are the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "builder/manifest/family_text.h"
#include "builder/manifest/manifest.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

const fs::path kManifests = fs::path(testing::SourceDir()) / "tests" / "builder" / "same";

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kManifests)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".short.toml")) names.push_back(name.substr(0, name.size() - 11));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string TextOf(const fs::path& path) {
  const Result<Family> family = ReadManifest(path.string());
  EXPECT_TRUE(family.ok()) << family.status().ToString();
  return family.ok() ? FamilyText(*family) : std::string();
}

class ShortManifest : public ::testing::TestWithParam<std::string> {};

TEST_P(ShortManifest, MeansTheLongOneBesideIt) {
  const std::string text = TextOf(kManifests / (GetParam() + ".short.toml"));
  EXPECT_EQ(text, TextOf(kManifests / (GetParam() + ".long.toml")));
  EXPECT_NE(text.find("step "), std::string::npos) << "nothing was compared";
}

INSTANTIATE_TEST_SUITE_P(Same, ShortManifest, ::testing::ValuesIn(Names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace kbundle::builder
