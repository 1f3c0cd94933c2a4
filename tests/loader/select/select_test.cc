// Promise: Select is a pure function with a stated order, says why what is not legal is not, and
// obeys the policy.
#include "kbundle/select.h"

#include <gtest/gtest.h>

#include "loader/open/index.h"
#include "loader/select/candidates.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::MakeSpec;
using testing::SampleMaker;
using testing::TempDir;

class SelectTest : public ::testing::Test {
 protected:
  SelectTest() : bundle_(SampleMaker(64).Open(dir_ / "sample.kb")) {}
  ~SelectTest() override { Policy::Global().Clear(); }

  Problem Scale(const std::string& x) {
    auto problem = bundle_->MakeProblem("demo.scale", MakeSpec({x}));
    KB_CHECK(problem.ok());
    return std::move(*problem);
  }
  static Device On(const std::string& target) { return *DeviceFromTargetName(target); }
  // "vec8 any" for the ids' names and tunables, in order.
  std::string Order(const Problem& problem, const Device& device,
                    const SelectOptions& options = {}) {
    const auto selected = Select(*bundle_, problem, device, options);
    if (!selected.ok()) return selected.status().ToString();
    const auto first = SelectFirst(*bundle_, problem, device, options);
    EXPECT_EQ(first->variant, selected->front().variant);
    EXPECT_EQ(first->choice, selected->front().choice);
    std::string text;
    for (const Selected& row : *selected) {
      std::string id = bundle_->VariantId(row.variant);
      id = id.substr(id.find('/') + 1);
      text += (text.empty() ? "" : " ") + id;
      if (row.choice != Choice::kManifestOrder) text += std::string("!") + ChoiceName(row.choice);
    }
    return text;
  }
  void ExpectError(const Problem& problem, const Device& device, const SelectOptions& options,
                   StatusCode code, const std::string& part) {
    const auto all = Select(*bundle_, problem, device, options);
    const auto first = SelectFirst(*bundle_, problem, device, options);
    for (const Status& status : {all.status(), first.status()}) {
      EXPECT_EQ(status.code(), code) << status.ToString();
      EXPECT_NE(status.message().find(part), std::string::npos) << status.ToString() << "\n"
                                                                << part;
    }
  }

  TempDir dir_;
  std::shared_ptr<const Bundle> bundle_;
};

TEST_F(SelectTest, OrdersByTargetFitThenManifestOrder) {
  EXPECT_EQ(Order(Scale("f32[4,64]"), On("sm_90a")),
            "vec[T=f32,VEC=4]@sm_90a any[T=f32]@sm_90a any[T=f32]@portable!portable");
  EXPECT_EQ(Order(Scale("bf16[4,64]"), On("sm_90a")),
            "vec[T=bf16,VEC=8]@sm_90a vec[T=bf16,VEC=4]@sm_90a any[T=bf16]@sm_90a "
            "any[T=bf16]@portable!portable");
  EXPECT_EQ(Order(Scale("bf16[4,4]"), On("x86-64-v4")),
            "simd[T=bf16]@x86-64-v3 simd[T=bf16]@x86-64-v2");
  EXPECT_EQ(Order(Scale("bf16[4,4]"), On("x86-64-v2")), "simd[T=bf16]@x86-64-v2");
}

TEST_F(SelectTest, LeavesOutWhatIsNotLegalForShapeOrAlignment) {
  EXPECT_EQ(Order(Scale("bf16[4,4]"), On("sm_86")),
            "vec[T=bf16,VEC=4]@sm_80 any[T=bf16]@sm_80 any[T=bf16]@portable!portable");
  EXPECT_EQ(Order(Scale("bf16[4,64]"), On("sm_103"), {.alignment = 2, .policy = {}}),
            "any[T=bf16]@sm_100f any[T=bf16]@portable!portable");
}

TEST_F(SelectTest, UsesPortableCodeOnlyWhereNothingElseFitsAndOnlyWhenAllowed) {
  EXPECT_EQ(Order(Scale("f32[4,64]"), On("sm_120")), "any[T=f32]@portable!portable");
  SelectOptions options;
  options.policy.allow_portable = false;
  EXPECT_EQ(Order(Scale("f32[4,64]"), On("sm_90"), options),
            "vec[T=f32,VEC=4]@sm_90a any[T=f32]@sm_90a");
  ExpectError(Scale("f32[4,64]"), On("sm_120"), options, StatusCode::kPermissionDenied,
              "portable code is not allowed");
}

TEST_F(SelectTest, SaysWhatExistsWhenTheDeviceIsNotCovered) {
  ExpectError(
      Scale("f32[4,64]"), On("sm_75"), {}, StatusCode::kNotFound,
      "it has code for sm_80, sm_90a, sm_100f, portable, x86-64-v2, x86-64-v3, none of which "
      "runs on sm_75");
  auto sum = bundle_->MakeProblem("demo.sum", MakeSpec({"f32[100]"}));
  ExpectError(*sum, On("x86-64-v3"), {}, StatusCode::kNotFound, "it has code for sm_80, none");
}

TEST_F(SelectTest, SaysWhatExistsWhenTheDTypeIsNotCovered) {
  TempDir dir;
  BundleMaker maker = SampleMaker(64);
  maker.index.ops[0]->types[0]->dtypes.push_back(static_cast<uint8_t>(DType::kF16));
  bundle_ = maker.Open(dir / "x.kb");
  ExpectError(Scale("f16[4,64]"), On("sm_90"), {}, StatusCode::kNotFound,
              "it has code for T=bf16; T=f32, not for T=f16");
}

TEST_F(SelectTest, SaysWhyEachVariantIsNotLegal) {
  TempDir dir;
  BundleMaker maker = SampleMaker(64);
  const fb::OpT& op = *maker.index.ops[0];
  for (int i : {1, 2}) {
    fb::TemplateT& row = *maker.index.templates[i];
    row.lets.push_back(maker.Rule(op, &row, "100 K 64 - /", "PER"));
    row.when.push_back(maker.Rule(op, &row, "let:PER 1 >", "PER > 1"));
  }
  bundle_ = maker.Open(dir / "x.kb");
  ExpectError(
      Scale("f32[4,63]"), On("sm_90"), {}, StatusCode::kNotFound,
      "none of 4 variants is legal: vec: `K % VEC == 0` is false with rows=4, K=63 and VEC=8");
  ExpectError(Scale("f32[4,63]"), On("sm_90"), {}, StatusCode::kNotFound,
              "any: `PER > 1` is false");
  // K = 64 divides by zero in a let: illegal with that reason, not a failure of Select.
  ExpectError(
      Scale("f32[4,64]"), On("x86-64-v3"), {}, StatusCode::kNotFound,
      "`PER > 1` uses a let that could not be computed with rows=4, K=64: `PER` divides by zero");
  EXPECT_EQ(Order(Scale("f32[4,64]"), On("sm_90")), "vec[T=f32,VEC=4]@sm_90a");
}

TEST_F(SelectTest, AForcedVariantComesFirstWhereItIsMeantAndLegal) {
  Policy& policy = Policy::Global();
  const uint64_t before = policy.generation();
  ASSERT_TRUE(policy.Force(*bundle_, "demo.scale/any[T=bf16]").ok());
  EXPECT_GT(policy.generation(), before);
  SelectOptions options;
  options.policy = policy.snapshot();
  EXPECT_EQ(Order(Scale("bf16[4,4]"), On("sm_90"), options),
            "any[T=bf16]@sm_90a!forced any[T=bf16]@portable!forced vec[T=bf16,VEC=4]@sm_90a");
  // Another dtype, another kind of device: not meant.
  EXPECT_EQ(Order(Scale("f32[4,2]"), On("sm_90"), options),
            "any[T=f32]@sm_90a any[T=f32]@portable!portable");
  EXPECT_EQ(Order(Scale("bf16[4,2]"), On("x86-64-v2"), options), "simd[T=bf16]@x86-64-v2");
}

TEST_F(SelectTest, OfTwoForcedVariantsTheLaterWishComesFirst) {
  Policy& policy = Policy::Global();
  ASSERT_TRUE(policy.Force(*bundle_, "demo.scale/any[T=bf16]@sm_90a").ok());
  ASSERT_TRUE(policy.Force(*bundle_, "demo.scale/vec[T=bf16,VEC=4]@sm_90a").ok());
  SelectOptions options;
  options.policy = policy.snapshot();
  EXPECT_EQ(Order(Scale("bf16[4,4]"), On("sm_90"), options),
            "vec[T=bf16,VEC=4]@sm_90a!forced any[T=bf16]@sm_90a!forced "
            "any[T=bf16]@portable!portable");
}

TEST_F(SelectTest, AForcedVariantThatIsNotLegalIsAnError) {
  SelectOptions options;
  options.policy.wishes = {{"demo.scale/vec[T=bf16,VEC=8]@sm_90a", true}};
  ExpectError(Scale("bf16[4,4]"), On("sm_90"), options, StatusCode::kFailedPrecondition,
              "`K % VEC == 0` is false");
  ExpectError(Scale("bf16[4,8]"), On("sm_80"), options, StatusCode::kFailedPrecondition,
              "no target of it runs on sm_80");
}

TEST_F(SelectTest, ADeniedVariantIsNeverChosen) {
  Policy& policy = Policy::Global();
  ASSERT_TRUE(policy.Deny(*bundle_, "demo.scale/vec").ok());
  SelectOptions options;
  options.policy = policy.snapshot();
  EXPECT_EQ(Order(Scale("bf16[4,64]"), On("sm_90"), options),
            "any[T=bf16]@sm_90a any[T=bf16]@portable!portable");
  ASSERT_TRUE(policy.Deny(*bundle_, "demo.scale/simd").ok());
  options.policy = policy.snapshot();
  ExpectError(Scale("bf16[4,64]"), On("x86-64-v3"), options, StatusCode::kPermissionDenied,
              "simd: denied by policy");
}

TEST_F(SelectTest, TheLaterOfForceAndDenyWins) {
  Policy& policy = Policy::Global();
  ASSERT_TRUE(policy.Force(*bundle_, "demo.scale/vec").ok());
  ASSERT_TRUE(policy.Deny(*bundle_, "demo.scale/vec").ok());
  ASSERT_EQ(policy.snapshot().wishes.size(), 1u);
  EXPECT_FALSE(policy.snapshot().wishes[0].forced);
}

TEST_F(SelectTest, TheLaterOfForceAndDenyWinsHoweverItsIdIsSpelled) {
  Policy& policy = Policy::Global();
  const auto order = [&](const std::string& first, const std::string& then, bool force) {
    policy.Clear();
    EXPECT_TRUE((force ? policy.Deny(*bundle_, first) : policy.Force(*bundle_, first)).ok());
    EXPECT_TRUE((force ? policy.Force(*bundle_, then) : policy.Deny(*bundle_, then)).ok());
    return Order(Scale("bf16[4,64]"), On("sm_90"), {.policy = policy.snapshot()});
  };
  // All of them mean this point, some mean others too.
  const std::string point = "demo.scale/vec[T=bf16,VEC=4]@sm_90a";
  const std::string ids[] = {"demo.scale/vec", "demo.scale/vec@", "demo.scale/vec@sm_90a",
                             "demo.scale/vec[T=bf16,VEC=4]", "demo.scale/vec[T=bf16,VEC=4]@"};
  for (const std::string& id : ids) {
    EXPECT_EQ(order(id, point, true).find("vec[T=bf16,VEC=4]@sm_90a!forced"), 0u) << id;
    EXPECT_EQ(order(point, id, true).find("vec[T=bf16,VEC="), 0u) << id;
    EXPECT_EQ(order(id, point, false).find("VEC=4]"), std::string::npos) << id;
    EXPECT_EQ(order(point, id, false).find("VEC=4]"), std::string::npos) << id;
  }
  EXPECT_EQ(order("demo.scale/vec", point, false),
            "vec[T=bf16,VEC=8]@sm_90a!forced any[T=bf16]@sm_90a any[T=bf16]@portable!portable");
}

TEST_F(SelectTest, ThePolicyRefusesUnknownVariantsAndNamesTheNearest) {
  const Status status = Policy::Global().Force(*bundle_, "demo.scale/vec[T=bf16,VEC=9]");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("did you mean 'demo.scale/vec[T=bf16,VEC=8]'?"),
            std::string::npos)
      << status.ToString();
  EXPECT_EQ(Policy::Global().Deny(*bundle_, "vec").code(), StatusCode::kInvalidArgument);
}

TEST_F(SelectTest, StrictTakesOnlyWhatConformanceRanOnThisDevice) {
  SelectOptions options;
  options.policy.strict = true;
  Device device = On("sm_80");
  device.name = "NVIDIA Other GPU";
  ExpectError(Scale("f32[4,64]"), device, options, StatusCode::kPermissionDenied,
              "conformance never ran it on this device");
  device.name = "NVIDIA Test GPU";  // the sample ran blob 0 there: T=f32, VEC=8, which K = 64
                                    // allows at 32 bytes
  EXPECT_EQ(Order(Scale("f32[4,64]"), device, {.alignment = 32, .policy = options.policy}),
            "vec[T=f32,VEC=8]@sm_80");
}

TEST_F(SelectTest, StrictTakesWhatRanOnAnyDeviceWhenATargetIsAskedAboutAndNotAMachine) {
  SelectOptions options{.alignment = 32, .policy = {}};
  options.policy.strict = true;
  EXPECT_EQ(DeviceFromTargetName("sm_80")->name, "");
  EXPECT_EQ(Order(Scale("f32[4,64]"), *DeviceFromTargetName("sm_80"), options),
            "vec[T=f32,VEC=8]@sm_80");
  ExpectError(Scale("bf16[4,64]"), *DeviceFromTargetName("sm_80"), options,
              StatusCode::kPermissionDenied, "conformance never ran it");
}

TEST_F(SelectTest, VariantIdsLeadBackToTheirVariants) {
  for (uint32_t i = 0; i < IndexOf(*bundle_).variants()->size(); ++i) {
    const auto found = bundle_->FindVariants(bundle_->VariantId(i));
    ASSERT_TRUE(found.ok()) << bundle_->VariantId(i);
    EXPECT_EQ(*found, std::vector<uint32_t>{i});
  }
  EXPECT_EQ(bundle_->FindVariants("demo.scale/any[T=f32]")->size(), 4u);
  EXPECT_EQ(bundle_->FindVariants("demo.scale/any@sm_80")->size(), 2u);
}

TEST_F(SelectTest, ExplainHasALineForEveryVariantOfThatKindOfDevice) {
  const auto verdicts = Explain(*bundle_, Scale("bf16[4,4]"), On("sm_90"));
  EXPECT_EQ(verdicts.size(),
            20u);  // 6 on each of three targets, 2 portable; host ones are not asked for
  const auto reason = [&](const std::string& id) {
    for (const Verdict& verdict : verdicts) {
      if (bundle_->VariantId(verdict.variant) == "demo.scale/" + id) return verdict.reason;
    }
    return std::string("missing");
  };
  EXPECT_EQ(verdicts[0].reason, "chosen: first legal in manifest order");
  EXPECT_TRUE(verdicts[0].legal);
  EXPECT_EQ(reason("any[T=bf16]@sm_90a"), "legal, number 2");
  EXPECT_EQ(reason("vec[T=bf16,VEC=8]@sm_90a"),
            "`K % VEC == 0` is false with rows=4, K=4 and VEC=8");
  EXPECT_EQ(reason("any[T=bf16]@sm_100f"), "sm_100f cannot run on sm_90");
  EXPECT_EQ(reason("any[T=f32]@sm_90a"), "it is for T=f32, this is T=bf16");
}

TEST_F(SelectTest, WorkspaceIsTheSumOfAlignedRegionsAndDoesNotDependOnTheDevice) {
  const auto sum = bundle_->MakeProblem("demo.sum", MakeSpec({"f32[100]"}));
  const auto chosen = SelectFirst(*bundle_, *sum, On("sm_80"));
  EXPECT_EQ(*WorkspaceBytes(*bundle_, *sum, chosen->variant, 16), 512);
  EXPECT_EQ(*MaxWorkspaceBytes(*bundle_, *sum, Device::Kind::kCuda), 512);
  EXPECT_EQ(MaxWorkspaceBytes(*bundle_, *sum, Device::Kind::kHost).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(*MaxWorkspaceBytes(*bundle_, Scale("f32[4,64]"), Device::Kind::kHost), 0);
}

// What is remembered of a template's rules is of that template, and of points alike alone.
TEST_F(SelectTest, EachVariantIsJudgedAsIfItWereTheOnlyOne) {
  for (const char* x : {"bf16[4,64]", "bf16[4,63]", "bf16[1,8]", "bf16[3,4096]", "bf16[2,1]"}) {
    const Problem problem = Scale(x);
    for (const char* target : {"sm_80", "sm_90a", "sm_100a"}) {
      const Device device = On(target);
      const SelectOptions options;
      const auto targets = RankTargets(IndexOf(*bundle_), device);
      CandidateCheck all(*bundle_, problem, device, options);
      const VariantRange range = VariantsOf(IndexOf(*bundle_), problem.op);
      for (const RankedTarget& on : targets) {
        for (uint32_t variant = range.end; variant-- > range.first;) {
          const Legality found = all.Check(variant, on, true);
          const Legality alone =
              CandidateCheck(*bundle_, problem, device, options).Check(variant, on, true);
          EXPECT_EQ(found.legal, alone.legal) << bundle_->VariantId(variant) << " " << x;
          EXPECT_EQ(found.reason, alone.reason) << bundle_->VariantId(variant) << " " << x;
          EXPECT_EQ(found.reason.empty(), found.legal);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kbundle
