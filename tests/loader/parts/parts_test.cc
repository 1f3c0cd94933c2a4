// Promise: files of one library answer as one bundle with all their targets would, and what is no
// part of it, or is missing, is said with the files' names.
#include "kbundle/parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kbundle/description.h"
#include "kbundle/explanation.h"
#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/part_maker.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::MakeSpec;
using testing::PartMaker;
using testing::TempDir;

class PartsTest : public ::testing::Test {
 protected:
  ~PartsTest() override { Policy::Global().Clear(); }

  std::shared_ptr<const Bundle> Open(BundleMaker maker, const std::string& file) {
    return maker.Open(dir_ / file);
  }
  std::shared_ptr<const Parts> Joined(std::vector<std::shared_ptr<const Bundle>> bundles,
                                      std::vector<AbsentPart> absent = {}) {
    auto parts = Parts::Join(std::move(bundles), std::move(absent));
    KB_CHECK(parts.ok());
    return *parts;
  }
  static Device On(const std::string& target) { return *DeviceFromTargetName(target); }
  static Problem Fill(const Parts& parts, const std::string& x) {
    return *parts.MakeProblem("library.fill", MakeSpec({x}, {{"mode", "wide"}, {"sizes", "[2]"}}));
  }
  // The file that serves, or what is said.
  std::string ServedBy(const Parts& parts, const std::string& x, const std::string& target) {
    const SelectOptions options{.policy = Policy::Global().snapshot()};
    const auto served = SelectFirstLaunchable(parts, Fill(parts, x), On(target), options);
    if (!served.ok()) return served.status().ToString();
    return served->bundle->path().substr(dir_.path().size() + 1);
  }
  static void ExpectSaid(const Status& status, StatusCode code,
                         const std::vector<std::string>& said) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    for (const std::string& text : said) {
      EXPECT_NE(status.message().find(text), std::string::npos) << status.ToString();
    }
  }
  Status JoinStatus(BundleMaker a, BundleMaker b) {
    return Parts::Join({Open(std::move(a), "a.kb"), Open(std::move(b), "b.kb")}).status();
  }

  TempDir dir_;
};

TEST_F(PartsTest, AProblemGoesToTheMostSpecificPartAndWhereThatHasNothingToTheNext) {
  auto v2 = Open(PartMaker("x86-64-v2", 2), "v2.kb");
  auto v3 = Open(PartMaker("x86-64-v3", 3, "K 8 % 0 =="), "v3.kb");
  for (const auto& parts : {Joined({v2, v3}), Joined({v3, v2})}) {
    EXPECT_EQ(ServedBy(*parts, "u8[16]", "x86-64-v4"), "v3.kb");
    EXPECT_EQ(ServedBy(*parts, "u8[16]", "x86-64-v3"), "v3.kb");
    EXPECT_EQ(ServedBy(*parts, "u8[17]", "x86-64-v3"), "v2.kb") << "K % 8";
    EXPECT_EQ(ServedBy(*parts, "u8[16]", "x86-64-v2"), "v2.kb");
  }
  const auto gpus =
      Joined({v2, Open(PartMaker("sm_80", 0), "sm80.kb"), Open(PartMaker("sm_86", 0), "sm86.kb"),
              Open(PartMaker("sm_100f", 0), "sm100f.kb")});
  EXPECT_EQ(ServedBy(*gpus, "u8[16]", "sm_89"), "sm86.kb") << "the nearer of equal fits";
  EXPECT_EQ(ServedBy(*gpus, "u8[16]", "sm_80"), "sm80.kb");
  EXPECT_EQ(ServedBy(*gpus, "u8[16]", "sm_103"), "sm100f.kb");
}

TEST_F(PartsTest, AForcedVariantGoesBeforeABetterTargetAndNothingInItsPlace) {
  auto v2 = Open(PartMaker("x86-64-v2", 2), "v2.kb");
  auto v3 = Open(PartMaker("x86-64-v3", 3, "K 8 % 0 =="), "v3.kb");
  const auto parts = Joined({v2, v3});
  ASSERT_TRUE(Policy::Global().Force(*v2, "library.fill/fill@x86-64-v2").ok());
  EXPECT_EQ(ServedBy(*parts, "u8[16]", "x86-64-v4"), "v2.kb");
  Policy::Global().Clear();
  ASSERT_TRUE(Policy::Global().Force(*v3, "library.fill/fill@x86-64-v3").ok());
  EXPECT_EQ(ServedBy(*parts, "u8[16]", "x86-64-v3"), "v3.kb");
  for (const auto& [size, target, why] :
       {std::tuple{"u8[17]", "x86-64-v3", "`K 8 % 0 ==` is false"},
        std::tuple{"u8[16]", "x86-64-v2", "no target of it runs on x86-64-v2"}}) {
    const std::string said = ServedBy(*parts, size, target);
    EXPECT_NE(said.find("is forced but not legal"), std::string::npos) << said;
    EXPECT_NE(said.find(why), std::string::npos) << said;
  }
  Policy::Global().Clear();
  ASSERT_TRUE(Policy::Global().Force(*v3, "library.fill/fill").ok());  // of any target
  EXPECT_EQ(ServedBy(*parts, "u8[17]", "x86-64-v3"), "v2.kb");
}

TEST_F(PartsTest, PlansAreOfThePartThatServes) {
  // Levels that every x86-64 has, so that the memsets run.
  const auto parts = Joined({Open(PartMaker("x86-64-v1", 1), "v1.kb"),
                             Open(PartMaker("x86-64-v2", 2, "K 8 % 0 =="), "v2.kb")});
  Runtime runtime;
  for (const auto& [size, value] : {std::pair{16, 2}, std::pair{17, 1}}) {
    const Problem problem = Fill(*parts, "u8[" + std::to_string(size) + "]");
    const auto made = runtime.MakePlan(*parts, problem, Device::Kind::kHost);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    std::vector<uint8_t> x(size), y(size);
    void *operands[] = {x.data()}, *results[] = {y.data()};
    ASSERT_TRUE(made->plan->Launch(nullptr, {operands, results, nullptr}).ok());
    EXPECT_EQ(std::count(y.begin(), y.end(), value), size);
    EXPECT_EQ(made->bundle->VariantId(made->plan->variants().front()),
              "library.fill/fill@x86-64-v" + std::to_string(value));
  }
}

TEST_F(PartsTest, TooSmallAWorkspaceLeadsToTheNextPartUnlessBatchesMustAgree) {
  const auto parts = Joined({Open(PartMaker("x86-64-v1", 1), "v1.kb"),
                             Open(PartMaker("x86-64-v2", 2, "", 4096), "v2.kb")});
  const Problem problem = Fill(*parts, "u8[16]");
  EXPECT_EQ(*MaxWorkspaceBytes(*parts, problem, Device::Kind::kHost), 4096);
  Runtime runtime;
  const auto roomy = runtime.MakePlan(*parts, problem, Device::Kind::kHost);
  ASSERT_TRUE(roomy.ok()) << roomy.status().ToString();
  EXPECT_EQ(roomy->bundle, parts->all()[1]);
  const auto tight =
      runtime.MakePlan(*parts, problem, Device::Kind::kHost, {.workspace_limit = 100});
  ASSERT_TRUE(tight.ok()) << tight.status().ToString();
  EXPECT_EQ(tight->bundle, parts->all()[0]);
  const PlanOptions alike{.workspace_limit = 100, .modes = {.batch_invariant = true}};
  const Status refused = runtime.MakePlan(*parts, problem, Device::Kind::kHost, alike).status();
  ExpectSaid(refused, StatusCode::kResourceExhausted, {"get this variant or none"});
}

TEST_F(PartsTest, WhereNoPartHasCodeForADeviceTheErrorSaysWhatToInstall) {
  const auto parts =
      Joined({Open(PartMaker("x86-64-v2", 2), "base.kb"), Open(PartMaker("sm_90a", 0), "sm90a.kb")},
             {{*Target::Parse("sm_80"), "pip install \"library[sm80]\""},
              {*Target::Parse("sm_100f"), "pip install \"library[sm100f]\""}});
  const Problem problem = Fill(*parts, "u8[16]");
  const Status status = SelectFirstLaunchable(*parts, problem, On("sm_80")).status();
  ExpectSaid(status, StatusCode::kNotFound,
             {"no part of 'library' has code for this sm_80; there is: x86-64-v2 (", "sm_90a (",
              "pip install \"library[sm80]\""});
  EXPECT_EQ(status.message().find("sm100f"), std::string::npos) << status.ToString();
  ExpectSaid(SelectFirstLaunchable(*parts, problem, On("sm_75")).status(), StatusCode::kNotFound,
             {"code for this sm_75", "kbundle build --target"});
  // One file that knows of others.
  const auto alone = Joined({parts->all()[0]}, parts->absent());
  ExpectSaid(MaxWorkspaceBytes(*alone, problem, Device::Kind::kCuda).status(),
             StatusCode::kNotFound,
             {"there is: x86-64-v2 (", "library[sm80]\", or pip install", "sm100f"});
  EXPECT_EQ(ServedBy(*alone, "u8[16]", "x86-64-v3"), "base.kb");
}

TEST_F(PartsTest, FilesThatAreNoPartsOfOneLibraryAreNamed) {
  ExpectSaid(JoinStatus(PartMaker("sm_90a", 0), PartMaker("sm_90a", 0, "K 8 % 0 ==")),
             StatusCode::kInvalidArgument, {"a.kb and ", "b.kb both have code for sm_90a"});
  BundleMaker named = PartMaker("sm_80", 0);
  named.index.name = "other";
  ExpectSaid(JoinStatus(PartMaker("sm_90a", 0), std::move(named)), StatusCode::kInvalidArgument,
             {"a.kb is of bundle 'library', ", "b.kb of 'other'", "--name"});
  for (const bool first : {true, false}) {
    BundleMaker more = PartMaker("sm_80", 0);
    fb::OpT& op = more.AddOp("library.more");
    more.AddOperand(op, "x", "u8", "K");
    more.AddResult(op, "y", "u8", "K");
    BundleMaker less = PartMaker("sm_90a", 0);
    ExpectSaid(first ? JoinStatus(std::move(more), std::move(less))
                     : JoinStatus(std::move(less), std::move(more)),
               StatusCode::kInvalidArgument,
               {std::string(first ? "a.kb" : "b.kb") + " has op 'library.more'", "has not"});
  }
}

TEST_F(PartsTest, AnOpThatPartsDeclareDifferentlyIsRefusedWhenItIsAskedFor) {
  BundleMaker other = PartMaker("x86-64-v3", 3);
  other.index.ops[0]->interface_hash ^= 1;
  const auto honest =
      Joined({Open(PartMaker("x86-64-v2", 2), "a.kb"), Open(std::move(other), "b.kb")});
  for (const Status& status : {honest->MakeProblem("library.fill", MakeSpec({"u8[16]"})).status(),
                               honest->FindInterface("library.fill").status(), honest->VerifyAll(),
                               Describe(*honest, "library.fill", Detail::kInterface).status()}) {
    ExpectSaid(status, StatusCode::kFailedPrecondition,
               {"op 'library.fill'", "a.kb and ", "b.kb declare it differently", "one version"});
  }
  EXPECT_EQ(honest->MakeProblem("library.fil", {}).status().code(), StatusCode::kNotFound);
}

TEST_F(PartsTest, APartThatLiesAboutItsInterfaceMakesItsOwnProblem) {
  BundleMaker forged = PartMaker("x86-64-v3", 3);
  forged.change_index = [](fb::IndexT& index) { index.ops[0]->attributes[0]->choices[1] = "w"; };
  const auto parts =
      Joined({Open(PartMaker("x86-64-v2", 2), "a.kb"), Open(std::move(forged), "b.kb")});
  const Status status =
      SelectFirstLaunchable(*parts, Fill(*parts, "u8[16]"), On("x86-64-v3")).status();
  ExpectSaid(status, StatusCode::kInvalidArgument, {"'wide' is none of plain, w"});
}

TEST_F(PartsTest, OneBundleIsItsOwnLibraryAndOrderMakesNoDifference) {
  auto a = Open(PartMaker("x86-64-v2", 2), "a.kb"), b = Open(PartMaker("sm_90a", 0), "b.kb");
  EXPECT_EQ(Parts::Of(a)->content_id(), a->content_id());
  EXPECT_EQ(Parts::Of(a)->path(), a->path());
  EXPECT_EQ(Joined({a, b})->digest(), Joined({b, a})->digest());
  EXPECT_NE(Joined({a, b})->digest(), a->digest());
  EXPECT_TRUE(Joined({a, b})->VerifyAll().ok());
}

TEST_F(PartsTest, AreDescribedAsOneWithEachVariantInTheBlobsOfItsFile) {
  const auto parts =
      Joined({Open(PartMaker("sm_90a", 0), "a.kb"), Open(PartMaker("x86-64-v2", 2), "b.kb"),
              Open(PartMaker("sm_80", 0, "K 8 % 0 =="), "c.kb")});
  const auto whole = Describe(*parts, "", Detail::kWhole);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  ASSERT_EQ(whole->parts.size(), 3u);
  EXPECT_EQ(whole->parts[2].path, parts->all()[2]->path());
  EXPECT_EQ(whole->parts[2].targets, (std::vector<std::string_view>{"sm_80"}));
  EXPECT_EQ(whole->targets, (std::vector<std::string_view>{"sm_90a", "x86-64-v2", "sm_80"}));
  EXPECT_EQ(whole->content_id, parts->content_id());
  ASSERT_EQ(whole->ops.size(), 1u);
  ASSERT_EQ(whole->ops[0].variants.size(), 3u);
  ASSERT_EQ(whole->blobs.size(), 2u);
  EXPECT_EQ(whole->ops[0].variants[0].kernels[0].blob, 0);
  EXPECT_EQ(whole->ops[0].variants[1].kernels[0].blob, -1);
  EXPECT_EQ(whole->ops[0].variants[2].kernels[0].blob, 1);
  EXPECT_EQ(whole->blobs[1].part, 2u);
}

TEST_F(PartsTest, AnExplanationIsOfThePartThatServesAndListsTheOthers) {
  const auto parts =
      Joined({Open(PartMaker("x86-64-v2", 2), "v2.kb"), Open(PartMaker("x86-64-v3", 3), "v3.kb")});
  const Problem problem = Fill(*parts, "u8[16]");
  const Explanation at_v4 = ExplainProblem(*parts, problem, On("x86-64-v4"));
  EXPECT_EQ(at_v4.part, parts->all()[1]->path());
  EXPECT_EQ(at_v4.id, "library.fill/fill@x86-64-v3");
  ASSERT_EQ(at_v4.candidates.size(), 2u);
  EXPECT_EQ(at_v4.candidates[1].reason, "legal, but " + at_v4.part + " goes first");
  const Explanation at_v2 = ExplainProblem(*parts, problem, On("x86-64-v2"));
  EXPECT_EQ(at_v2.part, parts->all()[0]->path());
  EXPECT_FALSE(at_v2.candidates[1].legal);
  EXPECT_EQ(at_v2.candidates[1].reason, "x86-64-v3 cannot run on x86-64-v2");
  EXPECT_NE(ExplainProblem(*parts, problem, On("sm_90")).error.find("no part of"),
            std::string::npos);
}

}  // namespace
}  // namespace kbundle
