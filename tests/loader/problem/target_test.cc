// Promise: code runs exactly where the rules say, and the better fit wins.
#include "kbundle/target.h"

#include <gtest/gtest.h>

namespace kbundle {
namespace {

int Fit(const char* target, const char* device) {
  return Target::Parse(target)->Fit(*DeviceFromTargetName(device));
}

TEST(Target, ParsesWhatItPrints) {
  for (const char* name : {"sm_80", "sm_90a", "sm_100f", "sm_103a", "sm_120", "portable",
                           "x86-64-v2", "x86-64-v4", "armv8-a"}) {
    const auto target = Target::Parse(name);
    ASSERT_TRUE(target.ok()) << name;
    EXPECT_EQ(target->ToString(), name);
  }
  EXPECT_EQ(Target::Parse("sm_100f")->major, 10);
  for (const char* name : {"", "sm_", "sm_8", "sm_080", "sm_90b", "sm_1000", "sm_9x", "x86-64-v5",
                           "x86-64-v", "avx"}) {
    EXPECT_EQ(Target::Parse(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(Target, RunsWhereTheRulesSay) {
  EXPECT_EQ(Fit("sm_90a", "sm_90"), 4);
  EXPECT_EQ(Fit("sm_90a", "sm_100"), 0);
  EXPECT_EQ(Fit("sm_100a", "sm_103"), 0);
  EXPECT_EQ(Fit("sm_100f", "sm_100"), 3);
  EXPECT_EQ(Fit("sm_100f", "sm_103"), 3);
  EXPECT_EQ(Fit("sm_103f", "sm_100"), 0);
  EXPECT_EQ(Fit("sm_100f", "sm_120"), 0);
  EXPECT_EQ(Fit("sm_80", "sm_80"), 2);
  EXPECT_EQ(Fit("sm_80", "sm_89"), 2);
  EXPECT_EQ(Fit("sm_86", "sm_80"), 0);
  EXPECT_EQ(Fit("sm_80", "sm_90"), 0);
  EXPECT_EQ(Fit("portable", "sm_120"), 1);
  EXPECT_EQ(Fit("portable", "sm_75"), 0);
  EXPECT_EQ(Fit("sm_80", "x86-64-v4"), 0);
  EXPECT_EQ(Fit("x86-64-v3", "sm_90"), 0);
  EXPECT_EQ(Fit("x86-64-v3", "x86-64-v4"), 3);
  EXPECT_EQ(Fit("x86-64-v4", "x86-64-v3"), 0);
  EXPECT_EQ(Fit("armv8-a", "armv8-a"), 8);
  EXPECT_EQ(Fit("armv8-a", "x86-64-v4"), 0);
  EXPECT_EQ(Fit("x86-64-v2", "armv8-a"), 0) << "its number is lower, and it is another machine's";
  EXPECT_EQ(Fit("sm_80", "armv8-a"), 0);
}

TEST(Device, OfThisMachineIsALevelThatRunsHere) {
  const Device device = HostDevice();
  EXPECT_EQ(device.kind, Device::Kind::kHost);
  EXPECT_GE(device.major, 1);
  EXPECT_LE(device.major, 4);
  EXPECT_EQ(device.ToString(), "x86-64-v" + std::to_string(device.major));
  EXPECT_TRUE(device.major < 3 || __builtin_cpu_supports("avx2"));
  EXPECT_TRUE(device.major < 4 || __builtin_cpu_supports("avx512f"));
}

TEST(Device, IsNotNamedByPortable) {
  EXPECT_EQ(DeviceFromTargetName("portable").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(DeviceFromTargetName("sm_90a")->sm_count, 132);
  EXPECT_EQ(DeviceFromTargetName("host")->ToString(), HostDevice().ToString());
}

}  // namespace
}  // namespace kbundle
