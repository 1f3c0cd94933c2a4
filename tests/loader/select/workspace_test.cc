// Promise: the workspace that is reserved before the device is known depends on the problem alone, and
// suffices for whatever is chosen later.
#include <gtest/gtest.h>

#include "kbundle/runtime.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/run_sample.h"
#include "support/tuned_rows.h"

namespace kbundle {
namespace {

using testing::AddTunedRows;
using testing::BundleMaker;
using testing::FakeImage;
using testing::ProblemOf;

// The variants of plans.one: "planned" for 4 rows of 8, "own" (100,000 bytes for each of K), and
// besides "tall" (no workspace; more than 4 rows) and "roomy" (200,000).
constexpr int64_t kOwn = 800000, kRoomy = 1600000;

struct Winner {
  int64_t rows;  // K is 8
  std::string winner, device;
};

class Workspace : public ::testing::Test {
 protected:
  void AddTemplates(const std::string& target) {
    const fb::OpT& op = *maker_.index.ops.back();
    fb::TemplateT& tall = maker_.AddTemplate("tall", "cuda");
    tall.when.push_back(maker_.Rule(op, &tall, "rows 4 >", "rows > 4"));
    fb::TemplateT& roomy = maker_.AddTemplate("roomy", "cuda");
    auto region = std::make_unique<fb::RegionT>(*maker_.index.templates[1]->regions[0]);
    region->bytes = std::make_unique<fb::Span>(maker_.Program(op, &roomy, "200000 K *"));
    roomy.regions.push_back(std::move(region));
    for (fb::TemplateT* row : {&tall, &roomy}) {
      fb::StepT& step = maker_.AddKernelStep(*row, "own");
      for (const char* arg : {"y", "x"}) maker_.AddArg(*row, step, arg);
      maker_.AddVariant(*row, target, {}, {}, {Code({8, 8})}, {"own"});
    }
  }
  uint32_t Code(std::vector<uint32_t> sizes) {
    return maker_.AddBlob(FakeImage({{"own", std::move(sizes)}}), fb::BlobFormat::Cubin);
  }

  // On sm_90a, with these tuned problems.
  void Tune(const std::vector<Winner>& winners) {
    AddTemplates("sm_90a");
    const auto plain = maker_.Open(dir_ / "plain.kb");
    maker_.change_index = [&](fb::IndexT& index) {
      std::vector<testing::TunedRow> rows;
      for (const Winner& one : winners) {
        const std::string x = "f32[" + std::to_string(one.rows) + ",8]";
        const uint32_t winner = plain->FindVariants("plans.one/" + one.winner)->at(0);
        const uint32_t base = winner == 0 ? 1 : 0;  // the winner is no default
        rows.push_back({ProblemOf(*plain, "plans.one", {x}), winner, base, one.device});
      }
      AddTunedRows(*plain, rows, &index);
    };
    bundle_ = maker_.Open(dir_ / "tuned.kb");
  }

  std::string Order(const Problem& problem, int major, int minor, const std::string& name = "") {
    std::string order;
    const Device device{Device::Kind::kCuda, major, minor, 1, name};
    const auto selected = Select(*bundle_, problem, device);
    for (const Selected& one : *selected) {
      const std::string id = bundle_->VariantId(one.variant);
      order += id.substr(id.find('/') + 1, id.find_first_of("[@") - id.find('/') - 1) + " ";
    }
    return order;
  }
  int64_t Reserved(const Problem& problem) {
    return MaxWorkspaceBytes(*bundle_, problem, Device::Kind::kCuda).value();
  }

  testing::TempDir dir_;
  BundleMaker maker_ = testing::PlansMaker();
  std::shared_ptr<const Bundle> bundle_;
};

TEST_F(Workspace, SufficesForTheNextNearestWinnerBehindOneThatIsNotLegal) {
  Tune({{4, "planned", "GPU A"}, {8, "tall", "GPU A"}, {16, "roomy", "GPU A"}});
  const Problem problem = ProblemOf(*bundle_, "plans.one", {"f32[4,8]"});
  EXPECT_EQ(Order(problem, 9, 0), "planned roomy own ");
  EXPECT_EQ(Reserved(problem), kRoomy);
  testing::FakeDriver driver;
  Runtime runtime(driver.api());
  const auto plan =
      runtime.MakePlan(bundle_, problem, Device::Kind::kCuda, {.workspace_limit = kRoomy});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*plan)->variants().at(0)), "plans.one/roomy@sm_90a");
}

TEST_F(Workspace, HoldsNothingForWhatIsNotLegal) {
  AddTemplates("sm_90a");
  fb::TemplateT& roomy = *maker_.index.templates.back();
  roomy.when.push_back(maker_.Rule(*maker_.index.ops.back(), &roomy, "rows 4 <=", "rows <= 4"));
  bundle_ = maker_.Open(dir_ / "rule.kb");
  EXPECT_EQ(Reserved(ProblemOf(*bundle_, "plans.one", {"f32[4,8]"})), kRoomy);
  EXPECT_EQ(Reserved(ProblemOf(*bundle_, "plans.one", {"f32[5,8]"})), kOwn);
}

// "roomy" is legal where addresses are promised to be less than 16-byte aligned, and only there.
TEST_F(Workspace, SufficesForEveryPromiseOfAlignment) {
  for (const bool by_let : {false, true}) {
    maker_ = testing::PlansMaker();
    AddTemplates("sm_90a");
    const fb::OpT& op = *maker_.index.ops.back();
    fb::TemplateT& roomy = *maker_.index.templates.back();
    if (by_let) roomy.lets.push_back(maker_.Rule(op, &roomy, "x.align", "ALIGNED"));
    const char* rule = by_let ? "let:ALIGNED 16 <" : "x.align 16 <";
    roomy.when.push_back(maker_.Rule(op, &roomy, rule, "align(x) < 16"));
    bundle_ = maker_.Open(dir_ / "aligned.kb");
    const Problem problem = ProblemOf(*bundle_, "plans.one", {"f32[4,8]"});
    const auto aligned = Select(*bundle_, problem, {Device::Kind::kCuda, 9, 0, 1, ""});
    EXPECT_EQ(aligned->size(), 2u);
    EXPECT_EQ(Reserved(problem), kRoomy) << by_let;
  }
}

TEST_F(Workspace, SufficesForEveryDeviceThatProblemsWereTunedOn) {
  Tune({{32, "tall", "GPU A"}, {64, "roomy", "GPU B"}});
  const Problem problem = ProblemOf(*bundle_, "plans.one", {"f32[32,8]"});
  EXPECT_EQ(Order(problem, 9, 0, "GPU A"), "tall own roomy ");
  EXPECT_EQ(Order(problem, 9, 0, "GPU B"), "roomy own tall ");
  EXPECT_EQ(Reserved(problem), kRoomy);
}

TEST_F(Workspace, SufficesForTheRestOfAFamilyBesideItsExactTarget) {
  AddTemplates("sm_100a");
  maker_.AddVariant(*maker_.index.templates[1], "sm_100f", {}, {}, {Code({8, 8, 4, 8})}, {"own"});
  bundle_ = maker_.Open(dir_ / "family.kb");
  const Problem problem = ProblemOf(*bundle_, "plans.one", {"f32[5,8]"});
  EXPECT_EQ(Order(problem, 10, 0), "tall roomy own ");
  EXPECT_EQ(Order(problem, 10, 3), "own ");
  EXPECT_EQ(Reserved(problem), kRoomy);
}

TEST_F(Workspace, IsTheSameUnderEveryPolicy) {
  Tune({});
  const Problem problem = ProblemOf(*bundle_, "plans.one", {"f32[4,8]"});
  for (const char* id : {"plans.one/planned", "plans.one/own", "plans.one/roomy"}) {
    ASSERT_TRUE(Policy::Global().Force(*bundle_, id).ok());
    EXPECT_EQ(Reserved(problem), kRoomy) << id;
    ASSERT_TRUE(Policy::Global().Deny(*bundle_, id).ok());
    EXPECT_EQ(Reserved(problem), kRoomy) << id;
    Policy::Global().Clear();
  }
}

}  // namespace
}  // namespace kbundle
