// Promise: a step of Warp is a launch on GPUs and a range on CPUs, of one template; what it may not
// have is refused when a bundle is opened.
#include <gtest/gtest.h>

#include <string>

#include "kbundle/describe.h"
#include "support/bundle_maker.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::TempDir;

BundleMaker WarpMaker() {
  BundleMaker maker;
  maker.index.name = "warp";
  fb::OpT& op = maker.AddOp("warp.run");
  maker.AddOperand(op, "x", "f32", "N");
  maker.AddResult(op, "y", "f32", "N");
  fb::TemplateT& row = maker.AddTemplate("only", "warp");
  row.source = "run.py";
  row.compiler = "warp";
  fb::StepT& step = maker.AddKernelStep(row, "run");
  step.block.clear();
  step.grid = {maker.Program(op, &row, "N 128 ceil_div")};
  step.range = std::make_unique<fb::Span>(maker.Program(op, &row, "N"));
  step.grain = std::make_unique<fb::Span>(maker.Program(op, &row, "7"));
  for (const char* arg : {"y", "x", "i32(N)"}) maker.AddArg(row, step, arg);
  const uint32_t cubin = maker.AddBlob({1, 2, 3}, fb::BlobFormat::Cubin);
  const uint32_t object = maker.AddBlob({4, 5}, fb::BlobFormat::HostObject);
  maker.AddVariant(row, "sm_90a", {}, {}, {cubin}, {"run_cuda_kernel_forward"});
  maker.AddVariant(row, "x86-64-v2", {}, {}, {object}, {"kb_run"});
  return maker;
}

std::string LaunchOn(const std::string& target, int64_t n) {
  const TempDir dir;
  const auto bundle = WarpMaker().Open(dir / "warp.kb");
  const Problem problem =
      testing::ProblemOf(*bundle, "warp.run", {"f32[" + std::to_string(n) + "]"});
  const std::string json = ExplainJson(*bundle, problem, *DeviceFromTargetName(target));
  const size_t at = json.find("\"launch\"");
  return at == std::string::npos ? json : json.substr(at);
}

TEST(WarpProvider, LaunchesAGridOnGpusAndDoesARangeOnCpus) {
  const std::string gpu = LaunchOn("sm_90a", 300), cpu = LaunchOn("x86-64-v3", 300);
  EXPECT_NE(gpu.find("\"grid\":[3,1,1]"), std::string::npos) << gpu;
  EXPECT_EQ(gpu.find("\"range\""), std::string::npos) << gpu;
  EXPECT_NE(cpu.find("\"range\":300,\"grain\":7"), std::string::npos) << cpu;
  EXPECT_EQ(cpu.find("\"grid\""), std::string::npos) << cpu;
}

TEST(WarpProvider, OfNothingLaunchesNothing) {
  for (const char* target : {"sm_90a", "x86-64-v2"}) {
    EXPECT_NE(LaunchOn(target, 0).find("\"steps\":[]"), std::string::npos) << target;
  }
}

struct WarpLie {
  const char* name;
  void (*tell)(fb::IndexT& index);
  const char* part;
};

fb::StepT& WarpStep(fb::IndexT& index) { return *index.templates[0]->steps[0]; }

const WarpLie kWarpLies[] = {
    {"NoRange", [](auto& i) { WarpStep(i).range.reset(); }, "range"},
    {"NoGrain", [](auto& i) { WarpStep(i).grain.reset(); }, "grain"},
    {"NoGrid", [](auto& i) { WarpStep(i).grid.clear(); }, "grid"},
    {"TwoDimsOfBlocks", [](auto& i) { WarpStep(i).grid.push_back(*WarpStep(i).range); }, "grid"},
    {"ABlock", [](auto& i) { WarpStep(i).block = WarpStep(i).grid; },
     "a warp step has a grid and a range and none of block"},
    {"Programmatic", [](auto& i) { WarpStep(i).programmatic = true; },
     "a warp step has a grid and a range and none of block"},
    {"TooManyThreads",
     [](auto& i) { i.kernels[0] = fb::Kernel(0, i.kernels[0].symbol(), 0, 0, 0, 0, 1025, 0); },
     "1025 threads, allowed are up to 1024"},
};

class WarpLies : public ::testing::TestWithParam<WarpLie> {};

TEST_P(WarpLies, AreRefusedAndNamed) {
  const TempDir dir;
  BundleMaker maker = WarpMaker();
  maker.change_index = GetParam().tell;
  testing::WriteFile(dir / "liar.kb", maker.Bytes());
  const auto bundle = Bundle::Open(dir / "liar.kb");
  ASSERT_FALSE(bundle.ok());
  EXPECT_EQ(bundle.status().code(), StatusCode::kDataLoss) << bundle.status().ToString();
  EXPECT_NE(bundle.status().message().find(GetParam().part), std::string::npos)
      << bundle.status().ToString();
}

INSTANTIATE_TEST_SUITE_P(Lies, WarpLies, ::testing::ValuesIn(kWarpLies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kbundle
