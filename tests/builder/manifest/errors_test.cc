// Every bad manifest in errors/ is refused with exactly the text beside it: place, caret, what was
// found, what is allowed. KB_WRITE_GOLDEN=1 writes the texts anew; review the difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(testing::SourceDir()) / "tests" / "builder" / "errors";

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> BadManifests() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The message without the place of this checkout.
std::string Relative(std::string message) {
  const std::string prefix = kFolder.string() + "/";
  for (size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix)) {
    message.erase(at, prefix.size());
  }
  return message;
}

class BadManifest : public ::testing::TestWithParam<std::string> {};

TEST_P(BadManifest, IsRefusedWithTheTextBesideIt) {
  fs::path path = kFolder / (GetParam() + ".toml");
  Result<Family> family = ReadManifest(path.string());
  ASSERT_FALSE(family.ok()) << "this manifest is bad and was accepted";
  EXPECT_EQ(family.status().code(), StatusCode::kInvalidArgument);
  std::string found = Relative(family.status().message()) + "\n";
  fs::path golden = kFolder / (GetParam() + ".txt");
  if (std::getenv("KB_WRITE_GOLDEN") != nullptr) std::ofstream(golden, std::ios::binary) << found;
  EXPECT_EQ(found, ReadFile(golden));
}

INSTANTIATE_TEST_SUITE_P(Errors, BadManifest, ::testing::ValuesIn(BadManifests()),
                         [](const auto& test) { return test.param; });

TEST(BadManifests, AreThereAndEachHasItsText) {
  std::vector<std::string> names = BadManifests();
  EXPECT_GE(names.size(), 44u);
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".txt") continue;
    EXPECT_TRUE(std::find(names.begin(), names.end(), entry.path().stem().string()) != names.end())
        << entry.path() << " has no manifest";
  }
}

TEST(BadManifests, NotThereIsNotFound) {
  Result<Family> family = ReadManifest((kFolder / "absent.toml").string());
  EXPECT_EQ(family.status().code(), StatusCode::kNotFound);
  EXPECT_NE(family.status().message().find("absent.toml"), std::string::npos);
}

}  // namespace
}  // namespace kbundle::builder
