// Promise: a sound bundle opens, and what it holds can be asked for.
#include <gtest/gtest.h>

#include "kbundle/select.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::MakeSpec;
using testing::SampleMaker;
using testing::TempDir;

TEST(BundleOpen, OpensASoundBundleAndAnswers) {
  TempDir dir;
  const auto bundle = SampleMaker().Open(dir / "sample.kb");
  EXPECT_EQ(bundle->name(), "sample");
  EXPECT_EQ(bundle->path(), dir / "sample.kb");
  EXPECT_EQ(bundle->content_id(), ToHex(bundle->digest()));
  EXPECT_EQ(*bundle->FindOp("demo.scale"), 0u);
  EXPECT_EQ(*bundle->FindOp("demo.sum"), 1u);
  EXPECT_EQ(bundle->VerifyAll().ToString(), "OK");

  const auto problem =
      bundle->MakeProblem("demo.scale", MakeSpec({"bf16[4,16,64]"}, {{"scale", "0.5"}}));
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  EXPECT_EQ(problem->ToString(),
            "demo.scale(x=bf16[4,16,64], mask=absent; scale=0.5, mode=plain, flag=false)");
  EXPECT_EQ(problem->results[0].ToString(), "bf16[4,16,64]");
  EXPECT_EQ(problem->symbols, (std::vector<int64_t>{64, 64}));

  const auto device = DeviceFromTargetName("sm_90a");
  const auto first = SelectFirst(*bundle, *problem, *device);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(bundle->VariantId(first->variant), "demo.scale/vec[T=bf16,VEC=8]@sm_90a");
}

}  // namespace
}  // namespace kbundle
