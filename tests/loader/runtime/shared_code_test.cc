// Promise: code is known by its SHA-256: bundles share what is the same and nothing else, and what
// no plan uses can be unloaded.
#include <gtest/gtest.h>

#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::CompileHostSample;
using testing::FakeDriver;
using testing::HostMaker;
using testing::kCuda;
using testing::kHost;
using testing::ProblemOf;
using testing::RunMaker;
using testing::TempDir;
using testing::WriteFile;

const std::vector<uint8_t>& SharedHostCode() {
  static const std::vector<uint8_t>& code = *[] {
    TempDir dir;
    return new std::vector<uint8_t>(CompileHostSample(dir.path(), testing::SourceDir()));
  }();
  return code;
}

std::string Renamed(BundleMaker maker, const std::string& name) {
  maker.index.name = name;
  return maker.Bytes();
}

TEST(SharedCode, BundlesOfOtherContentShareEqualHostObjects) {
  TempDir dir;
  WriteFile(dir / "a.kb", Renamed(HostMaker(SharedHostCode()), "a"));
  WriteFile(dir / "b.kb", Renamed(HostMaker(SharedHostCode()), "b"));
  Runtime runtime;
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const char* file : {"a.kb", "b.kb"}) {
    const auto bundle = *Bundle::Open(dir / file);
    auto plan = runtime.MakePlan(bundle, ProblemOf(*bundle, "host.scale", {"f32[7,5]"}), kHost);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    plans.push_back(*plan);
  }
  EXPECT_NE(plans[0], plans[1]) << "the bundles differ";
  EXPECT_EQ(runtime.stats().objects_loaded, 1u);
}

TEST(SharedCode, DeviceCodeIsUnloadedOnlyWhenAskedAndOnlyWhatNobodyUses) {
  TempDir dir;
  FakeDriver driver;
  Runtime runtime(driver.api());
  const auto bundle = RunMaker().Open(dir / "run.kb");
  auto scale = *runtime.MakePlan(bundle, ProblemOf(*bundle, "run.scale", {"f32[4,64]"}), kCuda);
  auto triton = *runtime.MakePlan(bundle, ProblemOf(*bundle, "run.triton", {"f32[4,64]"}), kCuda);
  const int loaded = driver.libraries_alive();
  runtime.UnloadDeviceCode();
  EXPECT_EQ(driver.libraries_alive(), loaded) << "plans use all of it";
  scale.reset();
  runtime.Trim();
  EXPECT_EQ(driver.libraries_alive(), loaded) << "only the caller knows that the GPU is done";
  runtime.UnloadDeviceCode();
  EXPECT_EQ(driver.libraries_alive(), 1);
  testing::FakeAddresses addresses(triton->problem());
  EXPECT_TRUE(triton->Launch(nullptr, addresses.args()).ok());
  EXPECT_TRUE(runtime.MakePlan(bundle, ProblemOf(*bundle, "run.scale", {"f32[4,64]"}), kCuda).ok());
}

}  // namespace
}  // namespace kbundle
