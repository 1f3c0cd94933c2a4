// What counts as right: tolerances are never smaller than what the dtype can say.
#include "builder/tune/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kbundle::builder {
namespace {

double WorstOf(DType dtype, const void* found, const std::vector<double>& wanted, Allowed allowed) {
  return Judge(dtype, found, wanted.data(), static_cast<int64_t>(wanted.size()),
               static_cast<int64_t>(wanted.size()), allowed, 1)
      .worst;
}

// 1.01 is not a bf16: its neighbours are 1.0078125 and 1.015625.
TEST(Accuracy, RelativeToleranceIsNeverLessThanAnUlpOfTheElement) {
  const std::vector<uint16_t> rounded = {0x3f81}, next_but_one = {0x3f83};
  EXPECT_LE(WorstOf(DType::kBF16, rounded.data(), {1.01}, {.relative = 2e-6}), 1);
  EXPECT_GT(WorstOf(DType::kBF16, next_but_one.data(), {1.01}, {.relative = 2e-6}), 1);
  const std::vector<float> close = {1.0f + 0x1p-23f}, far = {1.0f + 0x1p-20f};
  EXPECT_LE(WorstOf(DType::kF32, close.data(), {1.0}, {.relative = 1e-9}), 1);
  EXPECT_GT(WorstOf(DType::kF32, far.data(), {1.0}, {.relative = 1e-9}), 1);
}

TEST(Accuracy, RelativeToleranceIsOfTheRowsLargest) {
  const std::vector<float> found = {1000.0f, 0.0015f};
  EXPECT_LE(WorstOf(DType::kF32, found.data(), {1000.0, 0.001}, {.relative = 1e-6}), 1);
  EXPECT_GT(WorstOf(DType::kF32, found.data() + 1, {0.001}, {.relative = 1e-6}), 1);
}

TEST(Accuracy, NothingIsAllowedWhereNothingIsSaid) {
  const std::vector<float> found = {std::nextafter(1.0f, 2.0f)};
  EXPECT_TRUE(std::isinf(WorstOf(DType::kF32, found.data(), {1.0}, {})));
}

TEST(Accuracy, NaNAndInfinitiesAreTheSameOrWrong) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<float> found = {NAN, INFINITY, 1.0f};
  const Allowed loose = {.ulps = 1000, .relative = 1};
  EXPECT_EQ(WorstOf(DType::kF32, found.data(), {NAN, infinity, 1.0}, loose), 0);
  EXPECT_GT(WorstOf(DType::kF32, found.data(), {1.0, infinity, 1.0}, loose), 1);
  EXPECT_GT(WorstOf(DType::kF32, found.data(), {NAN, -infinity, 1.0}, loose), 1);
  EXPECT_EQ(WorstOf(DType::kF32, found.data(), {NAN, 1e39, 1.0}, loose), 0);  // beyond any f32
}

}  // namespace
}  // namespace kbundle::builder
