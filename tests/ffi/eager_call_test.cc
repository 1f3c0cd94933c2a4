// Promise: whatever fails in a call of PyTorch's boxed kernel, the stack holds results and every
// reference is given back.
#include "eager_call.h"

#include <gtest/gtest.h>

#include <vector>

#include "fake_torch.h"
#include "kbundle/kbundle_torch.h"

namespace kbundle {
namespace {

class EagerCallTest : public FakeTorchTest {
 protected:
  // With two operands and three results; how many results are defined, or -1 without any.
  int Call() {
    FakeTensor strided;
    strided.contiguous = false;
    std::vector<StableValue> stack = {static_cast<StableValue>(site_),
                                      reinterpret_cast<StableValue>(NewFake()),
                                      reinterpret_cast<StableValue>(NewFake(strided))};
    if (!EagerCall(torch_, &sites_, stack.data(), 3, 3)) return -1;
    int defined = 0;
    for (const StableValue value : stack) {
      const auto result = reinterpret_cast<TorchTensor>(value);
      defined += At(result)->sizes[0] >= 0;
      torch_.Delete(result);
    }
    return defined;
  }

  // One result of its own, one written over the second operand, one that is absent.
  void Learn() {
    auto key = TakeUnknownCall(site_);
    ASSERT_TRUE(key.has_value());
    EagerPlan plan;
    plan.results = {{true, 0, -1, {2, 3}, {3, 1}}, {true, 0, 1, {2, 3}, {3, 1}}, {}};
    sites_.Learn(site_, kb_policy_generation(), *key, std::move(plan));
  }

  Sites sites_;
  int64_t site_ = sites_.Make(2, {0, 1});
};

TEST_F(EagerCallTest, IsHandedBackUntilItIsLearned) {
  EXPECT_EQ(Call(), 0);
  Learn();
  EXPECT_EQ(Call(), 2);
  EXPECT_FALSE(TakeUnknownCall(site_).has_value()) << "it was known";
  kb_policy_clear();  // which is a change of the policy
  EXPECT_EQ(Call(), 0);
}

TEST_F(EagerCallTest, OfASiteThatIsGoneIsHandedBackAndTeachesNothing) {
  EXPECT_EQ(Call(), 0);
  Learn();
  sites_.Release(site_);
  EXPECT_EQ(Call(), 0);
  EXPECT_FALSE(TakeUnknownCall(site_).has_value());
}

TEST_F(EagerCallTest, APlanOfAnOlderPolicyIsNotLearned) {
  EXPECT_EQ(Call(), 0);
  const auto key = TakeUnknownCall(site_);
  ASSERT_TRUE(key.has_value());
  sites_.Learn(site_, kb_policy_generation() - 1, *key, EagerPlan());
  EXPECT_EQ(Call(), 0);
}

TEST_F(EagerCallTest, LosesNoReferenceWhicheverCallOfPyTorchFails) {
  EXPECT_EQ(Call(), 0);
  Learn();
  calls_so_far = 0;
  EXPECT_EQ(Call(), 2);
  const int most = calls_so_far;
  ASSERT_GT(most, 15);
  for (failing = 0; failing < most;) {
    calls_so_far = 0;
    const int defined = Call();
    // The last one makes the absent result undefined: not even that is there.
    EXPECT_EQ(defined, failing == most - 1 ? -1 : 0) << "call " << failing << " failed";
    ++failing;
  }
}

TEST_F(EagerCallTest, ATensorOfMoreDimsThanAKeyHoldsIsNotKnown) {
  static int64_t sizes[200] = {};
  torch_.GetDim = [](TorchTensor, int64_t* out) { return *out = 200, 0; };
  torch_.GetSizes = [](TorchTensor, int64_t** out) { return *out = sizes, 0; };
  EXPECT_EQ(Call(), 0);
  EXPECT_FALSE(TakeUnknownCall(site_).has_value());
}

TEST(TorchFunctions, OneThatIsMissingIsNamed) {
  const auto found = FillTorchFunctions([](const char* name) -> void* {
    static int32_t (*const number)() = [] { return 7; };
    return std::string(name) == "torch_parallel_for" ? nullptr : reinterpret_cast<void*>(number);
  });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(found.status().message().find("torch_parallel_for is missing"), std::string::npos)
      << found.status().message();
}

TEST(TorchFunctions, WithoutThoseOfCudaTheOthersServe) {
  const auto found = FillTorchFunctions([](const char* name) -> void* {
    static int32_t (*const number)() = [] { return 7; };
    return std::string(name).find("cuda_stream") != std::string::npos
               ? nullptr
               : reinterpret_cast<void*>(number);
  });
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_FALSE(found.value().has_cuda());
  EXPECT_EQ(found.value().dtypes[static_cast<int>(DType::kBF16)], 7);
}

TEST(TorchAbi, RefusesWhatIsSenseless) {
  const auto code = [](kb_error* error) {
    const int found = error == nullptr ? 0 : kb_error_code(error);
    kb_error_free(error);
    return found;
  };
  int64_t site = 0;
  const int32_t twice[] = {1, 1}, beyond[] = {0, 2};
  EXPECT_EQ(code(kb_torch_load(nullptr)), 3);
  EXPECT_EQ(code(kb_torch_implement(nullptr, 0)), 3);
  EXPECT_EQ(code(kb_torch_site_make(2, twice, 2, &site)), 3);
  EXPECT_EQ(code(kb_torch_site_make(2, beyond, 2, &site)), 3);
  EXPECT_EQ(code(kb_torch_site_make(2, nullptr, 2, &site)), 3);
  EXPECT_EQ(code(kb_torch_site_make(2, beyond, 1, nullptr)), 3);
  kb_torch_site_release(12345);
  int32_t cuda = 0;
  EXPECT_EQ(code(kb_torch_load(&cuda)), 12) << "no PyTorch is in this process";
}

}  // namespace
}  // namespace kbundle
