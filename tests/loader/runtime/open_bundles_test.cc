// Promise: a name and an op are one bundle; what is closed or reloaded gives its descriptor back,
// and whoever found the old one keeps it.
#include "kbundle/open_bundles.h"

#include <gtest/gtest.h>

#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::HostMaker;
using testing::OpenDescriptors;
using testing::RunMaker;
using testing::TempDir;
using testing::WriteFile;

class OpenBundles : public ::testing::Test {
 protected:
  OpenBundles() {
    WriteFile(dir_ / "run.kb", RunMaker().Bytes());
    testing::BundleMaker other = RunMaker();
    other.index.name = "other";
    WriteFile(dir_ / "other.kb", other.Bytes());  // the same ops
    WriteFile(dir_ / "host.kb", HostMaker({1, 2, 3}).Bytes());
  }
  TempDir dir_;
};

TEST_F(OpenBundles, TheSameContentIsTheSameBundle) {
  const auto first = OpenShared(dir_ / "run.kb", "same");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(*OpenShared(dir_ / "run.kb", "same"), *first);
  EXPECT_EQ(*FindOpen("same", "run.scale"), *first);
  const auto by_own_name = *OpenShared(dir_ / "host.kb");
  EXPECT_EQ(*FindOpen("host", "host.fill"), by_own_name);
}

TEST_F(OpenBundles, OneNameHoldsBundlesOfDifferentOps) {
  const auto run = *OpenShared(dir_ / "run.kb", "both");
  const auto host = *OpenShared(dir_ / "host.kb", "both");
  EXPECT_EQ(*FindOpen("both", "run.scale"), run);
  EXPECT_EQ(*FindOpen("both", "host.scale"), host);
  const Status missing = FindOpen("both", "run.absent").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("host.kb"), std::string::npos) << missing.ToString();
}

TEST_F(OpenBundles, OtherContentForATakenOpIsRefusedAndNamed) {
  const auto run = *OpenShared(dir_ / "run.kb", "taken");
  const Status status = OpenShared(dir_ / "other.kb", "taken").status();
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  for (const char* part : {"op 'run.", "run.kb", "other.kb", "another name, or reload"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.ToString();
  }
  EXPECT_EQ(*FindOpen("taken", "run.scale"), run);
}

TEST_F(OpenBundles, AReloadedNameStandsForTheNewFile) {
  const auto old = *OpenShared(dir_ / "run.kb", "reloaded");
  const auto host = *OpenShared(dir_ / "host.kb", "reloaded");
  const auto fresh = ReloadShared(dir_ / "other.kb", "reloaded");
  ASSERT_TRUE(fresh.ok()) << fresh.status().ToString();
  EXPECT_EQ(*FindOpen("reloaded", "run.scale"), *fresh);
  EXPECT_EQ(*FindOpen("reloaded", "host.fill"), host) << "it shares no op with the new file";
  EXPECT_TRUE(old->FindInterface("run.scale").ok()) << "whoever has it goes on";
  const Status absent = ReloadShared(dir_ / "absent.kb", "reloaded").status();
  EXPECT_EQ(absent.code(), StatusCode::kNotFound);
  EXPECT_EQ(*FindOpen("reloaded", "run.scale"), *fresh) << "a failed reload changes nothing";
}

TEST_F(OpenBundles, AClosedBundleGivesItsDescriptorBack) {
  const size_t before = OpenDescriptors();
  auto program = *OpenShared(dir_ / "run.kb", "closed");
  EXPECT_EQ(OpenDescriptors(), before + 1);
  ASSERT_TRUE(CloseShared("closed", program).ok());
  EXPECT_EQ(FindOpen("closed", "run.scale").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(program->VerifyAll().ok()) << "whoever has it goes on";
  const Status again = CloseShared("closed", program);
  EXPECT_EQ(again.code(), StatusCode::kNotFound);
  EXPECT_NE(again.message().find("open are"), std::string::npos) << again.ToString();
  program.reset();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(OpenBundles, ThreeHundredNamesLeaveNothingBehind) {
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 300; ++i) {
    const std::string name = "many_" + std::to_string(i);
    ASSERT_TRUE(CloseShared(name, *OpenShared(dir_ / "host.kb", name)).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(OpenBundles, AnUnknownNameIsToldWhatIsOpen) {
  const auto known = *OpenShared(dir_ / "run.kb", "known_name");
  const auto found = FindOpen("unknown_name", "run.scale");
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_NE(found.status().message().find("known_name"), std::string::npos);
}

}  // namespace
}  // namespace kbundle
