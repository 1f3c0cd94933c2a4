// Promise: what an index says of execution plans and own steps is refused where it makes no sense, and
// the sentence names element, value and limit.
#include <gtest/gtest.h>

#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/lie.h"

namespace kbundle {
namespace {

class VerifyPlans : public ::testing::TestWithParam<testing::Lie> {};

// Of the bundle of PlansMaker: template 0 is of provider cudnn, its row of the index says blob 1.
fb::Kernel PlanRow(const fb::Kernel& k, uint32_t blob, uint32_t workspace) {
  return {blob,
          k.symbol(),
          k.registers(),
          k.spill_bytes(),
          k.static_shared(),
          k.dynamic_shared(),
          k.threads(),
          workspace};
}

const testing::Lie kPlanLies[] = {
    {"KernelOfCudnnWithoutAGrid",
     [](auto& i) {
       i.templates[0]->steps[0]->kind = static_cast<uint8_t>(StepKind::kKernel);
       i.templates[0]->steps[0]->kernel = "ours";
     },
     "block has 0 dims, allowed 1 to 3"},
    {"KernelOfCudnnInAnExecutionPlan",
     [](auto& i) {
       i.templates[0]->steps[0]->kind = static_cast<uint8_t>(StepKind::kKernel);
       i.templates[0]->steps[0]->kernel = "ours";
       i.templates[0]->steps[0]->grid = i.templates[1]->steps[0]->grid;
       i.templates[0]->steps[0]->block = i.templates[1]->steps[0]->block;
       i.kernels[0] = PlanRow(i.kernels[0], 1, 0);
     },
     "blob 1 of format 4 for this target"},
    {"ExecutionPlanWithPrograms",
     [](auto& i) { i.templates[0]->steps[0]->programs = i.templates[1]->steps[0]->grid; },
     "an execution plan has arguments, no programs"},
    {"CodeForAnExecutionPlan", [](auto& i) { i.kernels[0] = PlanRow(i.kernels[0], 0, 5000); },
     "blob 0 of format 1 for this target"},
    {"ExecutionPlanWithoutABlob",
     [](auto& i) { i.kernels[0] = PlanRow(i.kernels[0], kNoBlob, 5000); },
     "an own step without a blob, and provider cudnn asks nobody"},
    {"ExecutionPlanForAKernel", [](auto& i) { i.kernels[1] = PlanRow(i.kernels[1], 1, 0); },
     "blob 1 of format 4 for this target"},
    {"WorkspaceOfAKernel", [](auto& i) { i.kernels[1] = PlanRow(i.kernels[1], 0, 256); },
     "a workspace of its own is for a provider's own steps"},
    {"WorkspaceOverTheCap", [](auto& i) { i.kernels[0] = PlanRow(i.kernels[0], 1, 0xffffff01u); },
     "4294967041 bytes of workspace, at most 4294967040", StatusCode::kResourceExhausted},
    {"ArrayForAnExecutionPlan",
     [](auto& i) {
       fb::ArgT& arg = *i.templates[0]->steps[0]->args[2];
       arg.kind = static_cast<uint8_t>(ArgKind::kArray);
       arg.count = 2;
     },
     "argument 2 of kind 6, which no execution plan takes"},
    {"GridOfAnExecutionPlan",
     [](auto& i) { i.templates[0]->steps[0]->grid = i.templates[1]->steps[0]->grid; },
     "an own step has arguments, programs and nothing that kernels and copies have"},
    {"ExecutionPlanForTheCpu",
     [](auto& i) {
       i.targets[0]->name = "x86-64-v2";
       i.targets[0]->kind = static_cast<uint8_t>(TargetKind::kHost);
       i.targets[0]->major = 2;
       i.targets[0]->minor = 0;
       i.targets[0]->feature = 0;
     },
     "provider cudnn cannot make code for target 'x86-64-v2'"},
    {"UnknownBlobFormat",
     [](auto& i) {
       fb::Blob& b = i.blobs[1];
       b = fb::Blob(b.offset(), b.stored_size(), b.size(), b.xxh3(), b.sha256(), b.base(), 5);
     },
     "format 5"},
};

TEST_P(VerifyPlans, RefusesTheLieAndNamesIt) {
  testing::ExpectLieRefused(testing::PlansMaker(), GetParam());
}

TEST(VerifyPlan, TakesTheBundleThatDoesNotLie) {
  testing::TempDir dir;
  EXPECT_TRUE(testing::PlansMaker().Open(dir / "plans.kb")->VerifyAll().ok());
}

INSTANTIATE_TEST_SUITE_P(Lies, VerifyPlans, ::testing::ValuesIn(kPlanLies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kbundle
