// Promise: the kernel of an op's operator makes a call whose plan it knows, and gives back every
// reference; any other call it leaves on the stack as it came, ready to be handed on.
#include "op_call.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "eager_call.h"
#include "fake_torch.h"
#include "kbundle/kbundle_torch.h"

namespace kbundle {
namespace {

std::set<std::string*> texts;
std::set<std::vector<StableValue>*> lists;

class OpCallTest : public FakeTorchTest {
 protected:
  OpCallTest() {
    torch_.IsGradEnabled = [] { return grad_mode; };
    torch_.RequiresGrad = [](const void*) { return wanted; };
    torch_.TextLength = [](TorchText text, size_t* out) {
      return Fails() ? 1 : (*out = reinterpret_cast<std::string*>(text)->size(), 0);
    };
    torch_.TextData = [](TorchText text, const char** out) {
      return Fails() ? 1 : (*out = reinterpret_cast<std::string*>(text)->data(), 0);
    };
    torch_.DeleteText = [](TorchText text) {
      EXPECT_EQ(texts.erase(reinterpret_cast<std::string*>(text)), 1u);
      delete reinterpret_cast<std::string*>(text);
      return 0;
    };
    torch_.ListSize = [](TorchList list, size_t* out) {
      return Fails() ? 1 : (*out = reinterpret_cast<std::vector<StableValue>*>(list)->size(), 0);
    };
    torch_.ListItem = [](TorchList list, size_t index, StableValue* out) {
      if (Fails()) return 1;
      *out = reinterpret_cast<std::vector<StableValue>*>(list)->at(index);
      return 0;
    };
    torch_.DeleteList = [](TorchList list) {
      EXPECT_EQ(lists.erase(reinterpret_cast<std::vector<StableValue>*>(list)), 1u);
      delete reinterpret_cast<std::vector<StableValue>*>(list);
      return 0;
    };
    grad_mode = wanted = false;
    op_.kinds = {ArgumentKind::kTensor,         ArgumentKind::kOptionalTensor,
                 ArgumentKind::kOptionalTensor, ArgumentKind::kNumber,
                 ArgumentKind::kNumbers,        ArgumentKind::kText};
    op_.operand_count = 3;
    op_.site = sites_.Make(3, {});
  }
  ~OpCallTest() override {
    EXPECT_TRUE(texts.empty()) << "texts leak";
    EXPECT_TRUE(lists.empty()) << "lists leak";
  }

  // The third operand is left out. Whether the call was made; what is left is given back.
  bool Call(const std::string& bundle = "a bundle", StableValue item = 7) {
    FakeTensor strided;
    strided.contiguous = false;
    auto* list = new std::vector<StableValue>{1, item};
    auto* text = new std::string(bundle);
    lists.insert(list);
    texts.insert(text);
    std::vector<StableValue> stack = {reinterpret_cast<StableValue>(NewFake()),
                                      reinterpret_cast<StableValue>(new StableValue(
                                          reinterpret_cast<StableValue>(NewFake(strided)))),
                                      0,
                                      5,
                                      reinterpret_cast<StableValue>(list),
                                      reinterpret_cast<StableValue>(text)};
    const bool made = OpCall(torch_, &sites_, op_, stack.data(), 3);
    if (made) {
      for (int i = 0; i < 3; ++i) torch_.Delete(reinterpret_cast<TorchTensor>(stack[i]));
      return true;
    }
    torch_.Delete(reinterpret_cast<TorchTensor>(stack[0]));
    auto* optional = reinterpret_cast<StableValue*>(stack[1]);
    torch_.Delete(reinterpret_cast<TorchTensor>(*optional));
    delete optional;
    EXPECT_EQ(stack[2], 0u);
    torch_.DeleteList(reinterpret_cast<TorchList>(stack[4]));
    torch_.DeleteText(reinterpret_cast<TorchText>(stack[5]));
    return false;
  }

  // One result of its own, one written over the second operand, one that is absent.
  void Learn(std::optional<std::string> environment = std::nullopt) {
    auto key = TakeUnknownCall(op_.site);
    ASSERT_TRUE(key.has_value());
    EagerPlan plan;
    plan.results = {{true, 0, -1, {2, 3}, {3, 1}}, {true, 0, 1, {2, 3}, {3, 1}}, {}};
    plan.environment = std::move(environment);
    sites_.Learn(op_.site, kb_policy_generation(), *key, std::move(plan));
  }

  static inline bool grad_mode = false, wanted = false;
  Sites sites_;
  TorchOp op_;
};

TEST_F(OpCallTest, MakesWhatItWasTaughtUntilThatIsForgotten) {
  EXPECT_FALSE(Call());
  Learn();
  EXPECT_TRUE(Call());
  sites_.Forget();
  EXPECT_FALSE(Call());
  Learn();
  EXPECT_TRUE(Call());
  kb_policy_clear();  // which is a change of the policy
  EXPECT_FALSE(Call());
}

TEST_F(OpCallTest, TellsAttributesAndBundlesApart) {
  EXPECT_FALSE(Call());
  Learn();
  EXPECT_FALSE(Call("a bundlf"));
  EXPECT_FALSE(Call("a bundle", 8));
  EXPECT_FALSE(Call(std::string("a bundle\0", 9)));
  EXPECT_TRUE(Call());
}

TEST_F(OpCallTest, LeavesWhatGradientsFlowThroughToTheRule) {
  EXPECT_FALSE(Call());
  Learn();
  grad_mode = true;
  EXPECT_TRUE(Call());
  wanted = true;
  EXPECT_FALSE(Call());
  EXPECT_FALSE(TakeUnknownCall(op_.site).has_value()) << "there is nothing to learn";
  grad_mode = false;
  EXPECT_TRUE(Call());
}

TEST_F(OpCallTest, WhatTheEnvironmentDecidedHoldsWhileItIsTheSame) {
  ASSERT_EQ(setenv("KBUNDLE_PATH", "here", 1), 0);
  EXPECT_FALSE(Call());
  Learn("here");
  EXPECT_TRUE(Call());
  ASSERT_EQ(setenv("KBUNDLE_PATH", "there", 1), 0);
  EXPECT_FALSE(Call());
  ASSERT_EQ(unsetenv("KBUNDLE_PATH"), 0);
  EXPECT_FALSE(Call());
  Learn("");
  EXPECT_TRUE(Call());
}

TEST_F(OpCallTest, LosesNoReferenceWhicheverCallOfPyTorchFails) {
  EXPECT_FALSE(Call());
  Learn();
  calls_so_far = 0;
  EXPECT_TRUE(Call());
  const int most = calls_so_far;
  ASSERT_GT(most, 20);
  for (failing = 0; failing < most; ++failing) {
    calls_so_far = 0;
    EXPECT_FALSE(Call()) << "call " << failing << " failed";
  }
}

TEST_F(OpCallTest, ATextLongerThanAKeyHoldsIsNotKnown) {
  EXPECT_FALSE(Call(std::string(2000, 'x')));
  EXPECT_FALSE(TakeUnknownCall(op_.site).has_value());
}

TEST(OpKernels, AreEachAFunctionOfTheirOwnUntilTheyAreUsedUp) {
  std::set<BoxedKernel> made;
  for (int i = 0; i < kMostOps; ++i) {
    const auto kernel = MakeOpKernel(TorchOp());
    if (!kernel.ok()) break;  // other tests of this process have some
    EXPECT_TRUE(made.insert(kernel.value()).second);
  }
  EXPECT_GT(made.size(), 400u);
  const auto kernel = MakeOpKernel(TorchOp());
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), StatusCode::kResourceExhausted);
}

TEST(TorchAbi, RefusesKindsThatAreNone) {
  const auto code = [](kb_error* error) {
    const int found = error == nullptr ? 0 : kb_error_code(error);
    kb_error_free(error);
    return found;
  };
  const int32_t kinds[] = {0, 2, 3};
  int64_t site = 0;
  EXPECT_EQ(code(kb_torch_implement_op(nullptr, kinds, 3, 0, &site)), 3);
  EXPECT_EQ(code(kb_torch_implement_op("a.b", nullptr, 3, 0, &site)), 3);
  EXPECT_EQ(code(kb_torch_implement_op("a.b", kinds, 3, 0, nullptr)), 3);
  EXPECT_EQ(code(kb_torch_implement_op("a.b", kinds, 3, 0, &site)), 12) << "no PyTorch is here";
  EXPECT_EQ(kb_torch_wants_gradient(&site), -1);
}

}  // namespace
}  // namespace kbundle
