// A PyTorch whose tensors are counted, and which fails in the call that a test names.
#ifndef KBUNDLE_TESTS_FFI_FAKE_TORCH_H_
#define KBUNDLE_TESTS_FFI_FAKE_TORCH_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "torch_functions.h"

namespace kbundle {

// The call with the number `failing` fails.
struct FakeTensor {
  int64_t sizes[2] = {2, 3};
  bool contiguous = true;
  float data[6] = {};
};
inline std::set<TorchTensor>* alive = nullptr;
inline int calls_so_far = 0;
inline int failing = -1;

inline int Fails() { return calls_so_far++ == failing ? 1 : 0; }

inline TorchTensor NewFake(FakeTensor tensor = {}) {
  auto made = reinterpret_cast<TorchTensor>(new FakeTensor(tensor));
  alive->insert(made);
  return made;
}

inline FakeTensor* At(TorchTensor tensor) {
  EXPECT_EQ(alive->count(tensor), 1u) << "a tensor that was given back is used";
  return reinterpret_cast<FakeTensor*>(tensor);
}

inline TorchFunctions FakeTorch() {
  TorchFunctions torch;
  torch.Delete = [](TorchTensor tensor) {
    EXPECT_EQ(alive->erase(tensor), 1u) << "a tensor is given back twice";
    delete reinterpret_cast<FakeTensor*>(tensor);
    return 0;
  };
  torch.NewUndefined = [](TorchTensor* out) {
    if (Fails()) return 1;
    *out = NewFake();
    At(*out)->sizes[0] = -1;
    return 0;
  };
  torch.NewReference = [](TorchTensor tensor, TorchTensor* out) {
    return Fails() ? 1 : (*out = NewFake(*At(tensor)), 0);
  };
  torch.GetDim = [](TorchTensor, int64_t* out) { return Fails() ? 1 : (*out = 2, 0); };
  torch.GetSizes = [](TorchTensor tensor, int64_t** out) {
    return Fails() ? 1 : (*out = At(tensor)->sizes, 0);
  };
  const auto zero = [](TorchTensor, int32_t* out) { return Fails() ? 1 : (*out = 0, 0); };
  torch.GetDtype = torch.GetDeviceType = torch.GetDeviceIndex = zero;
  torch.IsContiguous = [](TorchTensor tensor, bool* out) {
    return Fails() ? 1 : (*out = At(tensor)->contiguous, 0);
  };
  torch.GetConstData = [](TorchTensor tensor, const void** out) {
    return Fails() ? 1 : (*out = At(tensor)->data, 0);
  };
  torch.GetMutableData = [](TorchTensor tensor, void** out) {
    return Fails() ? 1 : (*out = At(tensor)->data, 0);
  };
  torch.EmptyStrided = [](int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t,
                          TorchTensor* out) { return Fails() ? 1 : (*out = NewFake(), 0); };
  torch.Copy = [](TorchTensor, TorchTensor, int32_t) { return Fails(); };
  torch.Zero = [](TorchTensor) { return Fails(); };
  torch.cuda = 1;
  return torch;
}

// Without a reference that is lost, or given back twice.
class FakeTorchTest : public ::testing::Test {
 protected:
  FakeTorchTest() {
    alive = &alive_;
    calls_so_far = 0;
    failing = -1;
  }
  ~FakeTorchTest() override { EXPECT_TRUE(alive_.empty()) << alive_.size() << " tensors leak"; }

  std::set<TorchTensor> alive_;
  TorchFunctions torch_ = FakeTorch();
};

}  // namespace kbundle

#endif  // KBUNDLE_TESTS_FFI_FAKE_TORCH_H_
