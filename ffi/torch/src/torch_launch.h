// A launch on tensors of PyTorch: copies where operands are not contiguous, results and workspace
// allocated, on the current stream or PyTorch's own threads.
#ifndef KBUNDLE_FFI_TORCH_LAUNCH_H_
#define KBUNDLE_FFI_TORCH_LAUNCH_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sites.h"
#include "torch_functions.h"

namespace kbundle {

struct TorchDevice {
  int32_t type = -1, index = -1;
};

// A reference of ours to a tensor, or nothing. Borrows the table.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(const TorchFunctions& torch, TorchTensor tensor) : torch_(&torch), tensor_(tensor) {}
  OwnedTensor(OwnedTensor&& other) noexcept
      : torch_(other.torch_), tensor_(std::exchange(other.tensor_, nullptr)) {}
  OwnedTensor& operator=(OwnedTensor&& other) noexcept {
    std::swap(torch_, other.torch_);
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~OwnedTensor() {
    if (tensor_ != nullptr) torch_->Delete(tensor_);
  }
  TorchTensor get() const { return tensor_; }
  TorchTensor Give() { return std::exchange(tensor_, nullptr); }

 private:
  const TorchFunctions* torch_ = nullptr;
  TorchTensor tensor_ = nullptr;
};

// Nothing in it yet; no tensor where there is no memory.
OwnedTensor EmptyTensor(const TorchFunctions& torch, const std::vector<int64_t>& dims,
                        const std::vector<int64_t>& strides, int32_t dtype, TorchDevice device);

// Results, one for each of the plan's, nothing where absent. False: something failed; made is then
// worth nothing. given: replaced by copies where they are not contiguous or written over; places:
// where they stand among the op's operands.
bool LaunchEager(const TorchFunctions& torch, const EagerPlan& plan, int32_t operand_count,
                 const std::vector<int32_t>& places, TorchDevice device,
                 std::vector<OwnedTensor>& given, std::vector<OwnedTensor>* made);

// The same of tensors that are contiguous, of which no result is written over one.
bool LaunchContiguous(const TorchFunctions& torch, const EagerPlan& plan, int32_t operand_count,
                      std::span<const int32_t> places, TorchDevice device,
                      std::span<const TorchTensor> given, std::vector<OwnedTensor>* made);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_TORCH_LAUNCH_H_
