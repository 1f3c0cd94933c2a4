// What tests of plans begin with: the run bundle on a fake driver.
#ifndef KBUNDLE_TESTS_SUPPORT_PLAN_FIXTURE_H_
#define KBUNDLE_TESTS_SUPPORT_PLAN_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle::testing {

class PlanFixture : public ::testing::Test {
 protected:
  ~PlanFixture() override { Policy::Global().Clear(); }

  std::shared_ptr<const Plan> MakePlan(const Problem& problem, int64_t workspace_limit = -1) {
    auto plan = runtime_.MakePlan(bundle_, problem, Device::Kind::kCuda,
                                  {.workspace_limit = workspace_limit});
    if (!plan.ok()) ADD_FAILURE() << plan.status().ToString();
    return plan.ok() ? *plan : nullptr;
  }
  std::shared_ptr<const Plan> MakePromised(const Problem& problem, int64_t alignment) {
    auto plan = runtime_.MakePlan(bundle_, problem, Device::Kind::kCuda, {.alignment = alignment});
    if (!plan.ok()) ADD_FAILURE() << plan.status().ToString();
    return plan.ok() ? *plan : nullptr;
  }
  Status WhyNot(const Problem& problem, int64_t workspace_limit = -1) {
    auto plan = runtime_.MakePlan(bundle_, problem, Device::Kind::kCuda,
                                  {.workspace_limit = workspace_limit});
    return plan.ok() ? Status() : plan.status();
  }
  std::string Chosen(const Plan& plan, size_t which = 0) {
    return bundle_->VariantId(plan.variants().at(which));
  }

  TempDir dir_;
  std::shared_ptr<const Bundle> bundle_ = RunMaker().Open(dir_ / "run.kb");
  FakeDriver driver_;
  Runtime runtime_{driver_.api()};
  Problem scale_ = ProblemOf(*bundle_, "run.scale", {"f32[6,7,64]"}, {{"scale", "0.5"}});
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_PLAN_FIXTURE_H_
