// Promise: a product tells cuBLASLt exactly what the manifest asked for, in column-major terms; its
// algorithm is checked when a plan is made; a launch is one call that allocates nothing.
#include <gtest/gtest.h>
#include <malloc.h>

#include "kbundle/product_descriptors.h"
#include "kbundle/runtime.h"
#include "support/files.h"
#include "support/product_sample.h"

namespace kbundle {
namespace {

using testing::FakeAddresses;
using testing::FakeDriver;
using testing::kCuda;
using testing::ProductMaker;
using testing::ProductProblem;
using testing::SampleAlgorithm;

class ProductTest : public ::testing::Test {
 protected:
  void Open(const std::vector<SampleAlgorithm>& algorithms) {
    bundle_ = ProductMaker(algorithms).Open(dir_ / "product.kb");
  }
  Result<std::shared_ptr<const Plan>> Make(const ProductProblem& problem) {
    return runtime_.MakePlan(bundle_, problem.On(*bundle_), kCuda, {.alignment = 16});
  }
  // Makes a plan, launches it once, and gives what cuBLASLt was told.
  StandinCall Told(const ProductProblem& problem) {
    auto plan = Make(problem);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    if (!plan.ok()) return {};
    FakeAddresses addresses((*plan)->problem());
    const Status launched = (*plan)->Launch(reinterpret_cast<void*>(0x77), addresses.args());
    EXPECT_TRUE(launched.ok()) << launched.ToString();
    return lt_.state().last;
  }

  testing::TempDir dir_;
  std::shared_ptr<const Bundle> bundle_ =
      ProductMaker({SampleAlgorithm{}}).Open(dir_ / "product.kb");
  FakeDriver driver_;
  testing::StandinCublasLt lt_{KB_STANDIN_CUBLASLT};
  Runtime runtime_{driver_.api()};
};

void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

TEST_F(ProductTest, RowMajorIsAskedForAsTheTransposeOfEverything) {
  const StandinCall told = Told({.m = 64, .n = 128, .k = 32});
  // D^T (128 x 64) = B^T (128 x 32) A^T (32 x 64), each in the memory it has.
  EXPECT_EQ(told.a_at, At(0x11000)) << "cuBLASLt's A is our b";
  EXPECT_EQ(told.b_at, At(0x10000));
  EXPECT_EQ(told.d_at, At(0x20000));
  EXPECT_EQ(told.c_at, told.d_at) << "no c: d stands in";
  EXPECT_EQ(told.desc.attributes[kLtDescTransA], 0u);
  EXPECT_EQ(told.desc.attributes[kLtDescTransB], 0u);
  EXPECT_EQ(told.a.rows, 128u);
  EXPECT_EQ(told.a.columns, 32u);
  EXPECT_EQ(told.a.leading, 128u);
  EXPECT_EQ(told.b.rows, 32u);
  EXPECT_EQ(told.b.columns, 64u);
  EXPECT_EQ(told.b.leading, 32u);
  EXPECT_EQ(told.d.rows, 128u);
  EXPECT_EQ(told.d.columns, 64u);
  EXPECT_EQ(told.d.leading, 128u);
  EXPECT_EQ(told.a.type, static_cast<uint64_t>(kLt16BF));
  EXPECT_EQ(told.a.batch, 1u);
  EXPECT_EQ(told.stream, At(0x77));
  EXPECT_EQ(told.alpha, 1.0f);
  EXPECT_EQ(told.beta, 0.0f);
  EXPECT_EQ(told.desc.attributes[kLtDescEpilogue], kLtEpilogueDefault);
}

TEST_F(ProductTest, TransposesAreSwappedLikeTheirMatrices) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const StandinCall told = Told({.m = 64, .n = 128, .k = 32, .ta = ta, .tb = tb});
      EXPECT_EQ(told.desc.attributes[kLtDescTransA], tb ? 1u : 0u);
      EXPECT_EQ(told.desc.attributes[kLtDescTransB], ta ? 1u : 0u);
      EXPECT_EQ(told.a.rows, tb ? 32u : 128u);
      EXPECT_EQ(told.a.columns, tb ? 128u : 32u);
      EXPECT_EQ(told.b.rows, ta ? 64u : 32u);
      EXPECT_EQ(told.b.columns, ta ? 32u : 64u);
      EXPECT_EQ(told.b.leading, told.b.rows);
    }
  }
}

TEST_F(ProductTest, BatchesHaveTheStrideOfDenseMatrices) {
  const StandinCall told = Told({.m = 64, .n = 128, .k = 32, .batch = 5, .c = true});
  EXPECT_EQ(told.a.batch, 5u);
  EXPECT_EQ(told.d.batch, 5u);
  EXPECT_EQ(told.a.batch_stride, 32u * 128u);
  EXPECT_EQ(told.b.batch_stride, 64u * 32u);
  EXPECT_EQ(told.c.batch_stride, 64u * 128u);
  EXPECT_EQ(told.d.batch_stride, 64u * 128u);
}

TEST_F(ProductTest, AlphaAndBetaComeFromAttributesAndBetaOnlyBesideC) {
  StandinCall told = Told({.c = true, .alpha = "0.5", .beta = "2"});
  EXPECT_EQ(told.alpha, 0.5f);
  EXPECT_EQ(told.beta, 2.0f);
  EXPECT_EQ(told.c_at, At(0x12000));
  told = Told({.alpha = "0.25", .beta = "2"});
  EXPECT_EQ(told.alpha, 0.25f);
  EXPECT_EQ(told.beta, 0.0f);
}

TEST_F(ProductTest, EveryEpilogueIsPutTogetherFromWhatIsPresent) {
  struct Case {
    ProductProblem problem;
    uint32_t epilogue;
  };
  const uint32_t relu = kLtEpilogueRelu, gelu = kLtEpilogueGelu, bias = kLtEpilogueBias,
                 aux = kLtEpilogueAux, gradient = kLtEpilogueBiasGradient;
  const uint32_t drelu = kLtEpilogueReluGradient | aux, dgelu = kLtEpilogueGeluGradient | aux;
  const Case cases[] = {
      {{.bias = true}, bias},
      {{.act = "relu"}, relu},
      {{.act = "relu", .bias = true}, relu | bias},
      {{.act = "relu", .aux = true}, relu | aux},
      {{.act = "relu", .bias = true, .aux = true}, relu | aux | bias},
      {{.act = "gelu"}, gelu},
      {{.act = "gelu", .bias = true}, gelu | bias},
      {{.act = "gelu", .aux = true}, gelu | aux},
      {{.act = "gelu", .bias = true, .aux = true}, gelu | aux | bias},
      {{.act = "drelu", .aux_in = true}, drelu},
      {{.act = "drelu", .aux_in = true, .dbias = true}, drelu | gradient},
      {{.act = "dgelu", .aux_in = true}, dgelu},
      {{.act = "dgelu", .aux_in = true, .dbias = true}, dgelu | gradient},
      {{.act = "grada", .dbias = true}, kLtEpilogueBiasGradientB},
      {{.act = "gradb", .dbias = true}, kLtEpilogueBiasGradientA},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.epilogue);
    const StandinCall told = Told(one.problem);
    EXPECT_EQ(told.desc.attributes[kLtDescEpilogue], one.epilogue);
    const bool with_bias = one.problem.bias || one.problem.dbias;
    EXPECT_EQ((told.desc.set >> kLtDescBias) & 1, with_bias ? 1u : 0u);
    if (with_bias) {
      EXPECT_EQ(told.desc.attributes[kLtDescBias], one.problem.bias ? 0x13000u : 0x22000u);
      EXPECT_EQ(told.desc.attributes[kLtDescBiasType], static_cast<uint64_t>(kLt16BF));
    }
    const bool with_aux = one.problem.aux_in || one.problem.aux;
    EXPECT_EQ((told.desc.set >> kLtDescAux) & 1, with_aux ? 1u : 0u);
    if (!with_aux) continue;
    EXPECT_EQ(told.desc.attributes[kLtDescAux], one.problem.aux_in ? 0x14000u : 0x21000u);
    EXPECT_EQ(told.desc.attributes[kLtDescAuxLeading], 128u);
    const bool typed = one.problem.act == "gelu" || one.problem.act == "dgelu";
    EXPECT_EQ((told.desc.set >> kLtDescAuxType) & 1, typed ? 1u : 0u) << "a bit mask has no type";
  }
}

TEST_F(ProductTest, AReluMaskHasRowsOfWholeMultiplesOf128Bits) {
  const StandinCall told = Told({.n = 136, .act = "relu", .aux = true});
  EXPECT_EQ(told.desc.attributes[kLtDescAuxLeading], 256u);
  EXPECT_EQ(Told({.n = 136, .act = "gelu", .aux = true}).desc.attributes[kLtDescAuxLeading], 136u);
}

TEST_F(ProductTest, AnEpilogueThatCublasltLacksIsRefusedWithItsName) {
  const std::pair<ProductProblem, const char*> cases[] = {
      {{.aux = true}, "aux without an activation"},
      {{.act = "drelu"}, "an activation's gradient without aux"},
      {{.act = "dgelu", .bias = true, .aux_in = true}, "a bias beside an activation's gradient"},
      {{.bias = true, .dbias = true}, "a bias and its gradient"},
      {{.dbias = true}, "a bias gradient of d without an activation's gradient"},
  };
  for (const auto& [problem, why] : cases) {
    const auto plan = Make(problem);
    ASSERT_FALSE(plan.ok()) << why;
    EXPECT_EQ(plan.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(plan.status().message().find(why), std::string::npos) << plan.status().ToString();
  }
}

TEST_F(ProductTest, ComputesInF32RoundingToTf32OnlyWhereAsked) {
  const auto compute = [](const StandinCall& told) { return told.desc.compute_and_scale; };
  EXPECT_EQ(compute(Told({})), static_cast<uint64_t>(kLtCompute32F));
  EXPECT_EQ(compute(Told({.type = "f32"})), static_cast<uint64_t>(kLtCompute32F));
  EXPECT_EQ(compute(Told({.type = "f32", .tf32 = true})),
            static_cast<uint64_t>(kLtCompute32FFastTf32));
  EXPECT_EQ(compute(Told({.tf32 = true})), static_cast<uint64_t>(kLtCompute32F));
  EXPECT_EQ(compute(Told({.type = "f64"})), kLtCompute64F | uint64_t{kLt64F} << 32);
}

TEST_F(ProductTest, ScalesAreReadFromTheDeviceAndSwappedLikeTheirMatrices) {
  const auto plan =
      runtime_.MakePlan(bundle_,
                        testing::ProblemOf(*bundle_, "product.scaled",
                                           {"e4m3[64,32]", "e4m3[128,32]", "f32[1]", "f32[1]"}),
                        kCuda, {.alignment = 16});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  FakeAddresses addresses((*plan)->problem());
  ASSERT_TRUE((*plan)->Launch(nullptr, addresses.args()).ok());
  const StandinCall& told = lt_.state().last;
  EXPECT_EQ(told.desc.attributes[kLtDescAScale], 0x13000u);
  EXPECT_EQ(told.desc.attributes[kLtDescBScale], 0x12000u);
  EXPECT_EQ(told.desc.attributes[kLtDescTransA], 1u) << "FP8 wants A transposed, B not";
  EXPECT_EQ(told.desc.attributes[kLtDescTransB], 0u);
  EXPECT_EQ(told.desc.attributes[kLtDescFastAccumulation], 1u);
  EXPECT_EQ(told.a.type, static_cast<uint64_t>(kLt8FE4M3));
  EXPECT_EQ(told.d.type, static_cast<uint64_t>(kLt16BF));
}

TEST_F(ProductTest, AKernelBehindAProductWorksOnItsResult) {
  const auto plan = runtime_.MakePlan(
      bundle_, testing::ProblemOf(*bundle_, "product.then_kernel", {"bf16[64,32]", "bf16[32,128]"}),
      kCuda, {.alignment = 16});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  FakeAddresses addresses((*plan)->problem());
  const int before = lt_.state().multiplies;
  ASSERT_TRUE((*plan)->Launch(At(0x77), addresses.args()).ok());
  EXPECT_EQ(lt_.state().multiplies, before + 1);
  ASSERT_EQ(driver_.launches().size(), 1u);
  const FakeDriver::Launch launch = driver_.launches()[0];
  EXPECT_EQ(launch.symbol, "behind");
  EXPECT_EQ(launch.Parameter<void*>(0), lt_.state().last.d_at);
  EXPECT_EQ(static_cast<void*>(launch.stream), At(0x77));
}

TEST_F(ProductTest, AlgorithmsAreCheckedWithWhatIsLaunched) {
  const StandinCall told = Told({.act = "gelu", .bias = true});
  EXPECT_EQ(lt_.state().checks, 1);
  StandinDesc checked = lt_.state().checked;
  EXPECT_EQ(checked.attributes[kLtDescBias] % 32, 16u) << "aligned to 16 bytes and no more";
  checked.attributes[kLtDescBias] = told.desc.attributes[kLtDescBias];
  EXPECT_EQ(std::memcmp(&checked, &told.desc, sizeof checked), 0);
}

TEST_F(ProductTest, AnotherVersionOfCublasIsPassedOverWithBothNames) {
  lt_.state().version = 130200;
  const auto plan = Make({});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(plan.status().message().find("13.1.0"), std::string::npos);
  EXPECT_NE(plan.status().message().find("13.2.0"), std::string::npos);
  EXPECT_EQ(lt_.state().handles, 0) << "nothing was made for it";
}

TEST_F(ProductTest, TheFirstAlgorithmThatPassesServes) {
  Open({{.id = 1, .refuse = kLtNotSupported},
        {.id = 2, .workspace = 4097},
        {.id = 3, .alignment = 32},
        {.id = 4, .workspace = 4096}});
  const auto plan = Make({});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(bundle_->VariantId((*plan)->variants().front()),
            "product.multiply/lt[T=bf16,ID=4]@sm_90a");
  const std::string reason = runtime_.stats().chosen.front().reason;
  EXPECT_NE(reason.find("CUBLAS_STATUS_NOT_SUPPORTED"), std::string::npos) << reason;
  EXPECT_NE(reason.find("4097 bytes of workspace"), std::string::npos) << reason;
  EXPECT_NE(reason.find("rows aligned to 32 bytes"), std::string::npos) << reason;
  FakeAddresses addresses((*plan)->problem());
  ASSERT_TRUE((*plan)->Launch(nullptr, addresses.args()).ok());
  EXPECT_EQ(lt_.state().last.workspace_at, addresses.workspace);
  EXPECT_EQ(lt_.state().last.workspace, 4096u);
}

TEST_F(ProductTest, NoAlgorithmThatPassesIsAnErrorWithTheReasons) {
  Open({{.id = 1, .refuse = kLtNotSupported}, {.id = 2, .workspace = 8192}});
  const auto plan = Make({});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("CUBLAS_STATUS_NOT_SUPPORTED"), std::string::npos);
  EXPECT_NE(plan.status().message().find("8192 bytes of workspace"), std::string::npos);
}

TEST_F(ProductTest, AnAlgorithmThatIsNotWhatTheBundleSaysIsDamage) {
  Open({{.id = 66, .claimed_id = 67}});
  const auto plan = Make({});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kDataLoss) << plan.status().ToString();
}

TEST_F(ProductTest, KernelsAreLoadedByACaptureWhenThePlanIsMade) {
  Open({{.workspace = 1000}});
  ASSERT_TRUE(Make({.bias = true}).ok());
  EXPECT_EQ(lt_.state().multiplies, 1) << "captured, once";
  EXPECT_NE(lt_.state().last.stream, nullptr);
  EXPECT_NE(lt_.state().last.workspace_at, nullptr);
  EXPECT_EQ(driver_.CountOf("StreamBeginCapture"), 1);
  EXPECT_EQ(driver_.CountOf("StreamEndCapture"), 1);
  EXPECT_EQ(driver_.CountOf("FuncLoad"), 1);
  EXPECT_EQ(driver_.CountOf("GraphDestroy"), 1);
  EXPECT_EQ(driver_.CountOf("StreamCreate"), driver_.CountOf("StreamDestroy"));
  EXPECT_EQ(driver_.CountOf("LaunchKernelEx"), 0);
}

TEST_F(ProductTest, WhateverTheDriverRefusesLeavesNothingBehind) {
  Open({{.workspace = 1000}});
  ASSERT_TRUE(Make({}).ok());
  const uint64_t before = driver_.call_count();
  ASSERT_TRUE(Make({.m = 8}).ok());
  const uint64_t calls = driver_.call_count() - before;
  for (uint64_t n = 1; n <= calls; ++n) {
    driver_.ClearLog();
    driver_.FailCall(n, CUDA_ERROR_OUT_OF_MEMORY);
    (void)Make({.m = static_cast<int64_t>(8 + 8 * n)});
    const std::string failed = driver_.calls()[n - 1];
    SCOPED_TRACE(failed);
    const auto made = [&](const char* call) { return driver_.CountOf(call) - (failed == call); };
    EXPECT_EQ(driver_.CountOf("StreamDestroy"), made("StreamCreate"));
    EXPECT_EQ(driver_.CountOf("StreamEndCapture"), made("StreamBeginCapture"));
    EXPECT_EQ(driver_.CountOf("GraphDestroy"), made("StreamEndCapture"));
  }
}

TEST_F(ProductTest, OneHandleServesAContext) {
  ASSERT_TRUE(Make({}).ok());
  ASSERT_TRUE(Make({.m = 8}).ok());
  EXPECT_EQ(lt_.state().handles, 1);
  FakeDriver::SetContext(2);
  ASSERT_TRUE(Make({}).ok());
  EXPECT_EQ(lt_.state().handles, 2);
}

TEST_F(ProductTest, ALaunchIsOneCallWithoutAllocation) {
  const auto plan = Make({.act = "gelu", .bias = true});
  ASSERT_TRUE(plan.ok());
  FakeAddresses addresses((*plan)->problem());
  const int before = lt_.state().multiplies;
  driver_.ClearLog();
  const struct mallinfo2 memory = mallinfo2();
  const Status launched = (*plan)->Launch(nullptr, addresses.args());
  const struct mallinfo2 after = mallinfo2();
  EXPECT_TRUE(launched.ok());
  EXPECT_EQ(after.uordblks, memory.uordblks);
  EXPECT_EQ(lt_.state().multiplies, before + 1);
  EXPECT_EQ(driver_.calls(), std::vector<std::string>{"CtxGetId"});
}

TEST_F(ProductTest, AFailedLaunchSaysWhatCublasltSays) {
  const auto plan = Make({});
  ASSERT_TRUE(plan.ok());
  lt_.state().multiply_with = kLtNotSupported;
  FakeAddresses addresses((*plan)->problem());
  const Status launched = (*plan)->Launch(nullptr, addresses.args());
  EXPECT_NE(launched.message().find("launching product.multiply"), std::string::npos);
  EXPECT_NE(launched.message().find("CUBLAS_STATUS_NOT_SUPPORTED (15)"), std::string::npos);
}

TEST_F(ProductTest, AHandleThatCannotBeMadeIsAnErrorThatPasses) {
  lt_.state().create_with = kLtNotInitialized;
  EXPECT_EQ(Make({}).status().code(), StatusCode::kUnavailable);
  lt_.state().create_with = 0;
  EXPECT_TRUE(Make({}).ok());
}

TEST_F(ProductTest, NothingToMultiplyEnqueuesNothing) {
  ASSERT_TRUE(Make({.batch = 0}).ok());
  EXPECT_EQ(lt_.state().multiplies, 0);
  EXPECT_FALSE(Make({.k = 0}).ok()) << "a sum over nothing is for another variant";
}

TEST_F(ProductTest, DescriptorsCanBeHadWithoutAnAlgorithm) {
  const Problem problem = ProductProblem{.m = 64, .n = 128, .k = 32}.On(*bundle_);
  const auto device = runtime_.CurrentDevice(kCuda);
  ASSERT_TRUE(device.ok());
  const auto described = DescribeProducts(**CublasLtApi::Get(), *bundle_, problem, *device, 0);
  ASSERT_TRUE(described.ok()) << described.status().ToString();
  ASSERT_EQ(described->size(), 1u);
  EXPECT_EQ(described->front().workspace_bytes, 4096);
  EXPECT_EQ(described->front().alignment, 16);
  EXPECT_EQ(lt_.state().checks, 0);
}

}  // namespace
}  // namespace kbundle
