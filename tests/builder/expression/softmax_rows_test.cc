// Rows of softmax may be as long as int32 counts: whichever variant is legal for a row counts to
// its end, and to where a vector that sticks out of it ends, without passing 2^31 - 1.
#include <gtest/gtest.h>

#include <algorithm>

#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/problem/bindings.h"
#include "builder/provider/provider.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kLast = 2147483647;
// MaskBytes::LoadShifted (kernels/softmax/vector.cuh) looks this far past the start of a vector;
// everything else ends with the vector, 8 elements at most.
constexpr int64_t kLook = 12;

bool Takes(const Template& variant, Bindings bindings) {
  if (!AddLets(variant, &bindings).ok()) return false;
  return std::all_of(variant.when.begin(), variant.when.end(), [&](const Program& rule) {
    const Slot slot = Run(rule.code, bindings);
    return slot.ok() && slot.value != 0;
  });
}

int64_t TunableAt(const Template& variant, const Template::Point& point, const char* name) {
  const auto at = std::find(variant.tunables.begin(), variant.tunables.end(), name);
  return at == variant.tunables.end() ? 1 : point.tunables[at - variant.tunables.begin()];
}

TEST(SoftmaxRows, OfEveryLengthThatInt32CountsHaveAVariantThatCountsWithinIt) {
  const Result<Family> family =
      ReadManifest(testing::SourceDir() + "/kernels/softmax/softmax.toml");
  ASSERT_TRUE(family.ok()) << family.status().ToString();
  ASSERT_EQ(family->ops.size(), 6u);
  for (const Op& op : family->ops) {
    const auto k = std::find(op.symbols.begin(), op.symbols.end(), "K") - op.symbols.begin();
    ASSERT_LT(static_cast<size_t>(k), op.symbols.size()) << op.name;
    Bindings bindings = BindingsOf(op, op.problems.front());
    for (int64_t length = kLast; length > kLast - 40; --length) {
      int takers = 0, vectors = 0;
      for (const Template& variant : op.templates) {
        if (variant.provider != FindProvider("cuda")) continue;
        for (const Template::Point& point : variant.points) {
          bindings.types = point.types;
          bindings.tunables = point.tunables;
          bindings.symbols[k] = length;
          if (!Takes(variant, bindings)) continue;
          ++takers;
          if (TunableAt(variant, point, "VEC") == 1) continue;
          ++vectors;
          EXPECT_LE(length - 1 + kLook, kLast) << op.name << "/" << variant.name << ", " << length;
        }
      }
      EXPECT_GE(takers, 3) << op.name << ", " << length;  // of each dtype
      EXPECT_GE(vectors, length < kLast - 16 ? 3 : 0) << op.name << ", " << length;
    }
  }
}

}  // namespace
}  // namespace kbundle::builder
