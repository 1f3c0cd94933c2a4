// Promise: open, selection and reading a blob stay within their budgets, here with room for a busy
// machine (the figures proper are printed, and measured by `kbundle_bench`).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "kbundle/select.h"
#include "loader/open/index.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/room.h"

namespace kbundle {
namespace {

using testing::kRoom;
using testing::LargeMaker;
using testing::MakeSpec;
using testing::TempDir;

template <typename Body>
double BestMicroseconds(int runs, const Body& body) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count());
  }
  return best;
}

double ResidentMegabytes() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

TEST(Cost, TenThousandVariantsOpenInMillisecondsAndAreSelectedFromInMicroseconds) {
  TempDir dir;
  const std::string path = dir / "large.kb";
  testing::WriteFile(path, LargeMaker(10000).Bytes());
  const auto first = Bundle::Open(path);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  ASSERT_EQ(IndexOf(**first).variants()->size(), 10000u);
  const double before = ResidentMegabytes();
  const auto held = Bundle::Open(path);
  const double held_mb = ResidentMegabytes() - before;

  const double open_us = BestMicroseconds(20, [&] {
    const auto bundle = Bundle::Open(path);
    ASSERT_TRUE(bundle.ok());
  });
  const auto problem =
      (*first)->MakeProblem("family1.op5", MakeSpec({"bf16[4096,4100]", "f32[4100]"}));
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  const auto device = DeviceFromTargetName("sm_90a");
  const auto chosen = SelectFirst(**first, *problem, *device);
  ASSERT_TRUE(chosen.ok()) << chosen.status().ToString();
  const double select_us = BestMicroseconds(20, [&] {
    for (int i = 0; i < 1000; ++i) {
      const auto selected = SelectFirst(**first, *problem, *device);
      ASSERT_TRUE(selected.ok());
    }
  });
  std::printf(
      "open and verify of 10,000 variants: %.0f us (index %.2f MB, resident %+.2f MB); "
      "1,000 selections: %.0f us, of %s\n",
      open_us, static_cast<double>(IndexOf(**first).variants()->size()) * 40e-6, held_mb, select_us,
      (*first)->VariantId(chosen->variant).c_str());
  EXPECT_LT(open_us, 3000 * kRoom);
  EXPECT_LT(select_us, 1000 * kRoom);
}

TEST(Cost, AFiftyKilobyteBlobIsReadInTensOfMicroseconds) {
  TempDir dir;
  const auto bundle = testing::SampleMaker(50000).Open(dir / "sample.kb");
  const double base_us = BestMicroseconds(50, [&] { ASSERT_TRUE(bundle->ReadBlob(0).ok()); });
  const double delta_us = BestMicroseconds(50, [&] { ASSERT_TRUE(bundle->ReadBlob(1).ok()); });
  Bundle::BaseCache bases;
  const double warm_us =
      BestMicroseconds(50, [&] { ASSERT_TRUE(bundle->ReadBlob(1, &bases).ok()); });
  std::printf(
      "50 KB from file to verified bytes: base %.0f us, delta %.0f us with a cold base, "
      "%.0f us with a warm one\n",
      base_us, delta_us, warm_us);
  EXPECT_LT(base_us, 60 * kRoom);
  EXPECT_LT(delta_us, 120 * kRoom);
  EXPECT_LT(warm_us, 60 * kRoom);
}

}  // namespace
}  // namespace kbundle
