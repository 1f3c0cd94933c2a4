// Promise: the base of a library in several wheels is opened with the parts that are installed, and
// with no other file, whatever the lines beside it say; what is wrong is said with the file and
// what to install.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "kbundle/open_bundles.h"
#include "kbundle/parts.h"
#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/part_maker.h"

namespace kbundle {
namespace {

namespace fs = std::filesystem;
using testing::BundleMaker;
using testing::OpenDescriptors;
using testing::PartMaker;
using testing::TempDir;
using testing::WriteFile;

const char kBase[] =
    "kbundle parts 1\npackage leafy\nversion 0.1.0\ndepth 1\nfamily v2 x86-64-v2\n"
    "family gpu sm_90a sm_100f\n";

std::string OfPart(const std::string& family, const std::string& version = "0.1.0",
                   const std::string& package = "leafy") {
  return "kbundle parts 1\npackage " + package + "\nversion " + version + "\npart " + family + "\n";
}

// A folder of packages: leafy, with code for x86-64-v1, and leafy_v2; not leafy_gpu.
class BesideTest : public ::testing::Test {
 protected:
  BesideTest() {
    Put("leafy/leafy.kb", PartMaker("x86-64-v1", 1), kBase);
    Put("leafy_v2/leafy.kb", PartMaker("x86-64-v2", 2), OfPart("v2"));
  }
  void Put(const std::string& path, BundleMaker maker, const std::string& beside) {
    fs::create_directories(fs::path(site_ / path).parent_path());
    WriteFile(site_ / path, maker.Bytes());
    WriteFile(site_ / path + ".parts", beside);
  }
  std::string base() const { return site_ / "leafy/leafy.kb"; }
  // The files of the library without the folder, or what is said.
  std::string Opened(const std::string& path, const std::vector<std::string>& folders = {}) const {
    const auto parts = Parts::Open(path, Checks::kByOp, {}, folders);
    if (!parts.ok()) return parts.status().message();
    std::string text = (*parts)->path();
    for (size_t at; (at = text.find(site_.path())) != std::string::npos;)
      text.erase(at, site_.path().size() + 1);
    return text;
  }
  void ExpectSaid(const std::vector<std::string>& texts, const std::string& path = "") const {
    const std::string said = Opened(path.empty() ? base() : path);
    for (const std::string& text : texts) EXPECT_NE(said.find(text), std::string::npos) << said;
  }

  TempDir site_;
};

TEST_F(BesideTest, WhoOpensTheBaseHasThePartsThatAreInstalledAndKnowsOfTheOthers) {
  const auto parts = *Parts::Open(base());
  EXPECT_EQ(Opened(base()), "leafy/leafy.kb, leafy_v2/leafy.kb");
  ASSERT_EQ(parts->absent().size(), 2u);
  EXPECT_EQ(parts->absent()[0].target.ToString(), "sm_90a");
  EXPECT_EQ(parts->absent()[1].target.ToString(), "sm_100f");
  EXPECT_EQ(parts->absent()[1].how, "pip install \"leafy[gpu]==0.1.0\"");
  EXPECT_EQ(Opened(site_ / "leafy_v2/leafy.kb"), "leafy_v2/leafy.kb") << "a part is itself alone";
  fs::remove(base() + ".parts");
  EXPECT_EQ(Opened(base()), "leafy/leafy.kb") << "a base that was built whole";
}

TEST_F(BesideTest, AnyWordsForTheBasesPathWillDo) {
  const fs::path before = fs::current_path();
  const std::vector<std::pair<std::string, std::string>> ways = {
      {site_.path(), "leafy/leafy.kb"},       {site_.path(), "./leafy//leafy.kb"},
      {site_ / "leafy", "leafy.kb"},          {site_ / "leafy", "./leafy.kb"},
      {site_ / "leafy", "../leafy/leafy.kb"}, {site_ / "leafy_v2", "./../leafy/./leafy.kb"},
      {"/", site_ / "leafy//leafy.kb"},
  };
  for (const auto& [folder, path] : ways) {
    fs::current_path(folder);
    const auto parts = Parts::Open(path);
    fs::current_path(before);
    ASSERT_TRUE(parts.ok()) << path << ": " << parts.status().ToString();
    EXPECT_EQ((*parts)->all().size(), 2u) << folder << " " << path;
  }
}

TEST_F(BesideTest, APackageThatIsALinkToAFolderHasItsPartsBesideTheLink) {
  const TempDir elsewhere;
  fs::rename(site_ / "leafy", elsewhere / "real");
  fs::create_directory_symlink(elsewhere / "real", site_ / "leafy");
  EXPECT_EQ(Opened(base()), "leafy/leafy.kb, leafy_v2/leafy.kb");
  EXPECT_EQ(Opened(elsewhere / "real/leafy.kb"), elsewhere / "real/leafy.kb");
}

TEST_F(BesideTest, ABaseMayLieAtAnyDepthAndAPackageBeSpelledAsNamesMay) {
  for (const auto& [folder, depth] : {std::pair{"deep/in/it/", "3"}, {"", "0"}}) {
    const std::string lines = "kbundle parts 1\npackage My.-Lib_2\nversion 1!2.0+cu13\ndepth " +
                              std::string(depth) + "\nfamily v2 x86-64-v2\n";
    Put(std::string(folder) + "x.kb", PartMaker("x86-64-v1", 1), lines);
    Put("my_lib_2_v2/x.kb", PartMaker("x86-64-v2", 2), OfPart("v2", "1!2.0+cu13", "My.-Lib_2"));
    EXPECT_EQ(Opened(site_ / (std::string(folder) + "x.kb")),
              std::string(folder) + "x.kb, my_lib_2_v2/x.kb");
  }
}

TEST_F(BesideTest, OtherFoldersOfPackagesAreLookedAtAfterTheBasesOwn) {
  const TempDir other;
  fs::create_directories(other / "leafy_gpu");
  WriteFile(other / "leafy_gpu/leafy.kb", PartMaker("sm_90a", 0).Bytes());
  WriteFile(other / "leafy_gpu/leafy.kb.parts", OfPart("gpu"));
  fs::create_directories(other / "leafy_v2");
  WriteFile(other / "leafy_v2/leafy.kb", "not looked at");
  WriteFile(other / "a file", "");
  const std::vector<std::string> folders = {other / "none", other / "a file", "", other.path()};
  EXPECT_EQ(Opened(base(), folders),
            "leafy/leafy.kb, leafy_v2/leafy.kb, " + (other / "leafy_gpu/leafy.kb"));
  EXPECT_TRUE((*Parts::Open(base(), Checks::kByOp, {}, folders))->absent().empty());
}

TEST_F(BesideTest, APartThatIsNotWhatItMustBeIsRefusedByName) {
  const std::string part = site_ / "leafy_v2/leafy.kb", again = "pip install \"leafy[v2]==0.1.0\"";
  for (const std::string& other :
       {OfPart("v2", "0.2.0"), OfPart("v2", "0.1.0", "other"), OfPart("gpu"), std::string(kBase)}) {
    WriteFile(part + ".parts", other);
    ExpectSaid({part, base() + " is the base of leafy 0.1.0", "of one version", again});
  }
  fs::remove(part + ".parts");
  ExpectSaid({"reading " + part + ".parts", "no such file"});
  WriteFile(part + ".parts", OfPart("v2"));
  WriteFile(part, "no bundle");
  ExpectSaid({"opening bundle '" + part + "'"});
  fs::remove(part);
  ExpectSaid({"there is no file " + part, again, "--force-reinstall"});
  fs::create_symlink(base(), part);
  ExpectSaid({base() + " and " + part + " both have code for x86-64-v1"});
  fs::remove(part);
  fs::create_symlink("leafy.kb", part);  // to itself
  ExpectSaid({part});
  fs::remove(part);
  fs::remove(part + ".parts");
  EXPECT_EQ(Opened(base()), "leafy/leafy.kb") << "a folder alone is no part";
  fs::create_symlink("leafy.kb", part);
  ExpectSaid({"looking for " + part, "symbolic links"});
}

TEST_F(BesideTest, APartThatNamesPartsItselfIsNotFollowed) {
  Put("leafy_gpu/leafy.kb", PartMaker("sm_90a", 0),
      "kbundle parts 1\npackage leafy\nversion 0.1.0\ndepth 1\nfamily gpu sm_90a\n");
  ExpectSaid({"leafy_gpu/leafy.kb is of leafy 0.1.0, a base"});
  EXPECT_NE(Opened(site_ / "leafy_gpu/leafy.kb").find("a base"), std::string::npos);
}

TEST_F(BesideTest, LinesThatNoBuildWroteOpenNothing) {
  const std::string head = "kbundle parts 1\npackage leafy\nversion 0.1.0\ndepth 1\n";
  const std::string tail = "family v2 x86-64-v2\n";
  std::string many = head;
  for (int i = 0; i < 256; ++i) many += "family v" + std::to_string(i) + " sm_80\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "ends within a line"},
      {head + "family v2 x86-64-v2", "ends within a line"},
      {head, "it must have package, version"},
      {"{\"library\": \"leafy\"}\n", "'kbundle parts 1' must stand"},
      {"kbundle parts 2\n", "line 1: it has 'kbundle parts 2'"},
      {head + "family v2\n", "line 5: it has 'v2' where a family and its targets"},
      {head + "family ../v2 sm_80\n", "it has '../v2'"},
      {head + "family v2/../../etc sm_80\n", "it has 'v2/../../etc'"},
      {head + "family V2 sm_80\n", "it has 'V2'"},
      {head + "family v2 ../../etc\n", "'../../etc' is no target"},
      {head + "family v2  x86-64-v2\n", "line 5"},
      {head + tail + tail, "line 6: it has 'v2' where another family's name"},
      {many, "line 260"},
      {head + tail + "part v2\n", "it must have package, version"},
      {head + "package leafy\n" + tail, "it has 'leafy' where one package's name"},
      {head + "depth 1\n" + tail, "it has '1' where one number up to 16"},
      {head + "path ../../etc/passwd\n", "it has 'path ../../etc/passwd'"},
      {head + "family v2 x86-64-v2\r\n", "line 5: it has a byte that is no printable ASCII"},
      {head + std::string("family v2 x86-64-v2\0", 20) + "\n", "no printable ASCII"},
      {head + "family caf\xe9 sm_80\n", "no printable ASCII"},
      {"\xff\xfe\n", "line 1: it has a byte that is no printable ASCII"},
      {"kbundle parts 1\npackage ../leafy\n", "it has '../leafy'"},
      {"kbundle parts 1\npackage leafy\"; rm -rf /\n", "it has 'leafy\"; rm -rf /'"},
      {"kbundle parts 1\npackage leafy\nversion 1\"; rm\n", "it has '1\"; rm'"},
      {"kbundle parts 1\npackage leafy\nversion $(rm)\n", "it has '$(rm)'"},
      {"kbundle parts 1\ndepth 17\n", "it has '17'"},
      {"kbundle parts 1\ndepth -1\n", "it has '-1'"},
      {"kbundle parts 1\ndepth 99999999999999999999\n", "where one number up to 16"},
      {head + std::string(70000, '\n') + tail, "and may have 65536"},
  };
  for (const auto& [lines, said] : cases) {
    WriteFile(base() + ".parts", lines);
    const auto parts = Parts::Open(base());
    ASSERT_FALSE(parts.ok()) << lines.substr(0, 200);
    EXPECT_EQ(parts.status().code(), StatusCode::kFailedPrecondition);
    const std::string message = parts.status().message();
    EXPECT_NE(message.find("reading " + base() + ".parts"), std::string::npos) << message;
    EXPECT_NE(message.find(said), std::string::npos) << message;
    EXPECT_NE(message.find("install its package again"), std::string::npos) << message;
    EXPECT_LT(message.size(), 700u);
  }
}

TEST_F(BesideTest, WhatIsNoFileIsNotReadAndNothingWaits) {
  const std::string beside = base() + ".parts";
  fs::remove(beside);
  ASSERT_EQ(mkfifo(beside.c_str(), 0600), 0);
  ExpectSaid({"reading " + beside, "not a regular file"});
  fs::remove(beside);
  fs::create_directory(beside);
  ExpectSaid({"reading " + beside, "not a regular file"});
  fs::remove(beside);
  fs::create_symlink("/dev/zero", beside);
  ExpectSaid({"reading " + beside, "not a regular file"});
  fs::remove(beside);
  fs::create_symlink(site_ / "nowhere", beside);
  EXPECT_EQ(Opened(base()), "leafy/leafy.kb") << "there is no such file";
}

TEST_F(BesideTest, NothingIsWrittenAndNothingStaysOpenAfterAFailure) {
  const auto files = [this] {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(site_.path()))
      found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto before = files();
  const size_t descriptors = OpenDescriptors();
  WriteFile(site_ / "leafy_v2/leafy.kb", "no bundle");
  EXPECT_FALSE(Parts::Open(base()).ok());
  EXPECT_EQ(files(), before);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(BesideTest, ThreadsThatOpenItAtOnceShareOneLibrary) {
  constexpr int kThreads = 8;
  std::vector<std::shared_ptr<const Parts>> opened(kThreads);
  std::vector<std::thread> threads;
  for (auto& one : opened) threads.emplace_back([&] { one = *OpenShared(base(), "beside"); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : opened) EXPECT_EQ(one, opened[0]);
  EXPECT_EQ(opened[0]->all().size(), 2u);
  EXPECT_EQ(*ReloadShared(base(), "beside"), opened[0]) << "the same content";
  EXPECT_TRUE(CloseShared("beside", opened[0]).ok());
}

}  // namespace
}  // namespace kbundle
