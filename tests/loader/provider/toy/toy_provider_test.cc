// Promise: a provider needs its folder and a line in the list of providers, nothing else: what it
// stores is verified, resolved, explained, made and launched by its own hands.
#include <gtest/gtest.h>

#include "kbundle/describe.h"
#include "kbundle/runtime.h"
#include "loader/cuda/cuda_steps.h"
#include "loader/provider/cublaslt/cublaslt_provider.h"
#include "loader/provider/cuda/cuda_provider.h"
#include "loader/provider/cudnn/cudnn_provider.h"
#include "loader/provider/host/host_provider.h"
#include "loader/provider/triton/triton_provider.h"
#include "loader/provider/warp/warp_provider.h"
#include "loader/resolve/launch_json.h"
#include "loader/resolve/resolver.h"
#include "loader/support/absent.h"
#include "loader/verify/steps.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

// ---- The provider: fills a result with the first byte of its blob. ----

struct Fill final : OwnStep {
  explicit Fill(int64_t bytes) : bytes(bytes) {}
  bool Equals(const OwnStep& other) const override {
    return bytes == static_cast<const Fill&>(other).bytes;
  }
  int64_t bytes;
};

class FillStep final : public CudaStep {
 public:
  FillStep(const DriverApi& driver, Pointer target, uint8_t value, int64_t bytes)
      : driver_(driver), target_(target), value_(value), bytes_(static_cast<size_t>(bytes)) {}

  Status Enqueue(CUstream stream, const LaunchArgs& args) const override {
    const auto at = reinterpret_cast<CUdeviceptr>(target_.At(args));
    return driver_.Check(driver_.MemsetD8Async(at, value_, bytes_, stream), "a toy");
  }

 private:
  const DriverApi& driver_;
  const Pointer target_;
  const uint8_t value_;
  const size_t bytes_;
};

class FillSteps final : public CudaSteps {
 public:
  Result<std::unique_ptr<const CudaStep>> Make(const CudaPlace& place,
                                               const ResolvedStep& step) override {
    KB_ASSIGN_OR_RETURN(const Buffer blob, place.bundle.ReadBlob(step.blob, &place.bases));
    const int64_t bytes = static_cast<const Fill&>(*step.own).bytes;
    return std::unique_ptr<const CudaStep>(
        std::make_unique<FillStep>(place.driver, step.args[0].pointer, blob.data()[0], bytes));
  }
};

class ToyProvider final : public CudaKernels {
 public:
  std::string_view name() const override { return "toy"; }
  bool MakesCodeFor(TargetKind kind) const override { return kind == TargetKind::kCuda; }
  Status VerifyOwn(const ProgramScope& scope, const fb::Step& step) const override {
    if (Count(step.args()) != 1 || Count(step.programs()) != 1) {
      return DataLoss("a toy has one argument and one program");
    }
    KB_RETURN_IF_ERROR(VerifyWritten(scope, *step.args()->Get(0)));
    return VerifyProgram(scope, step.programs()->Get(0), true);
  }
  std::string_view needs() const override { return "a child"; }
  Result<bool> ResolveOwn(Resolver& resolver, const fb::Step& step, const fb::Kernel&,
                          ResolvedStep& out) const override {
    KB_RETURN_IF_ERROR(resolver.AddArgs(step, out));
    KB_ASSIGN_OR_RETURN(const int64_t bytes, resolver.Eval(*step.programs()->Get(0), "bytes"));
    out.own = std::make_shared<Fill>(bytes);
    return bytes > 0;
  }
  std::string_view OwnStepName() const override { return "toy"; }
  void ExplainOwn(const ResolvedStep& step, LaunchJson& json) const override {
    json.Write("fills", step.args[0].pointer);
    json.writer().Key("bytes").Int(static_cast<const Fill&>(*step.own).bytes);
  }
  std::shared_ptr<CudaSteps> NewCudaSteps() const override { return std::make_shared<FillSteps>(); }
};

}  // namespace

// This program's list, in place of runtime/providers.cc.
std::span<const Provider* const> Providers() {
  static const CudaProvider& cuda = *new CudaProvider;
  static const HostProvider& host = *new HostProvider;
  static const TritonProvider& triton = *new TritonProvider;
  static const CudnnProvider& cudnn = *new CudnnProvider;
  static const CublasLtProvider& cublaslt = *new CublasLtProvider;
  static const WarpProvider& warp = *new WarpProvider;
  static const ToyProvider& toy = *new ToyProvider;
  static const Provider* const all[] = {&cuda, &host, &triton, &cudnn, &cublaslt, &warp, &toy};
  return all;
}

namespace {

using testing::BundleMaker;
using testing::FakeAddresses;
using testing::FakeDriver;
using testing::TempDir;

BundleMaker ToyMaker() {
  BundleMaker maker;
  maker.index.name = "toys";
  fb::OpT& op = maker.AddOp("toys.fill");
  maker.AddOperand(op, "x", "u8", "K");
  maker.AddResult(op, "y", "u8", "K");
  fb::TemplateT& row = maker.AddTemplate("only", "toy");
  fb::StepT& step = maker.AddOwnStep(row);
  maker.AddArg(row, step, "y");
  step.programs.push_back(maker.Program(op, &row, "K 2 /"));
  maker.AddVariant(row, "sm_90a", {}, {}, {maker.AddBlob({7, 7}, fb::BlobFormat::Own)}, {"fill"});
  return maker;
}

TEST(ToyProvider, ItsStepIsLaunchedAsItResolvedIt) {
  TempDir dir;
  const auto bundle = ToyMaker().Open(dir / "toys.kb");
  FakeDriver driver;
  Runtime runtime(driver.api());
  std::vector<std::string> filled;
  const Problem problem = testing::ProblemOf(*bundle, "toys.fill", {"u8[64]"});
  const auto plan = runtime.MakePlan(bundle, problem, Device::Kind::kCuda);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  driver.ClearLog();
  FakeAddresses addresses(problem);
  ASSERT_TRUE((*plan)->Launch(nullptr, addresses.args()).ok());
  EXPECT_EQ(driver.calls(), (std::vector<std::string>{"CtxGetId", "MemsetD8Async"}));
}

TEST(ToyProvider, ItsStepThatDoesNothingIsLeftOut) {
  TempDir dir;
  const auto bundle = ToyMaker().Open(dir / "toys.kb");
  FakeDriver driver;
  Runtime runtime(driver.api());
  const Problem problem = testing::ProblemOf(*bundle, "toys.fill", {"u8[1]"});
  const auto plan = runtime.MakePlan(bundle, problem, Device::Kind::kCuda);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  driver.ClearLog();
  FakeAddresses addresses(problem);
  ASSERT_TRUE((*plan)->Launch(nullptr, addresses.args()).ok());
  EXPECT_EQ(driver.CountOf("MemsetD8Async"), 0);
}

TEST(ToyProvider, ItSaysWhatItsStepsHaveAndNeed) {
  TempDir dir;
  const auto bundle = ToyMaker().Open(dir / "toys.kb");
  const Problem problem = testing::ProblemOf(*bundle, "toys.fill", {"u8[64]"});
  const std::string json = ExplainJson(*bundle, problem, *DeviceFromTargetName("sm_90a"));
  EXPECT_NE(json.find(R"("needs":"a child")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("kind":"toy","fills":{"result":"y","offset":0},"bytes":32)"),
            std::string::npos)
      << json;
  const auto described = DescribeJson(*bundle, "", Detail::kWhole);
  ASSERT_TRUE(described.ok());
  EXPECT_NE(described->find(R"("provider":"toy")"), std::string::npos);
  EXPECT_NE(described->find(R"("format":"toy")"), std::string::npos) << *described;
}

TEST(ToyProvider, WhatItRefusesIsNoBundle) {
  TempDir dir;
  BundleMaker maker = ToyMaker();
  maker.change_index = [](fb::IndexT& index) { index.templates[0]->steps[0]->programs.clear(); };
  testing::WriteFile(dir / "broken.kb", maker.Bytes());
  const auto bundle = Bundle::Open(dir / "broken.kb");
  EXPECT_EQ(bundle.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(bundle.status().message().find("a toy has one argument and one program"),
            std::string::npos)
      << bundle.status().ToString();
}

}  // namespace
}  // namespace kbundle
