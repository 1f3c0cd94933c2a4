// What the addresses of a launch must satisfy, and which of a plan's alignment classes they are in.
//
// A plan is resolved for addresses that are all multiples of 16 bytes, and again for addresses that
// are only multiples of what the plan's user promised, and of their element size. Who promises 16
// has no second class. Tensors without elements are not looked at.
#ifndef KBUNDLE_LOADER_ADDRESSES_H_
#define KBUNDLE_LOADER_ADDRESSES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/launch.h"
#include "kbundle/status.h"
#include "loader/plan/plan_builder.h"

namespace kbundle {

inline constexpr int64_t kVectorAlignment = 16;  // bytes; of the first alignment class

// Immutable after construction. Borrows nothing.
class AddressRules {
 public:
  AddressRules(const Bundle& bundle, const PlanFacts& facts);

  // The resolution for these addresses; -1: none, and Explain says why.
  int Classify(const LaunchArgs& args) const {
    uintptr_t any = 0, misaligned = 0;
    bool bad = false;
    for (const Tensor& tensor : tensors_) {
      const uintptr_t address = AddressOf(tensor, args);
      any |= address;
      misaligned |= address & tensor.element_mask;
      bad |= address == 0;
    }
    for (const InOut& pair : in_out_) {
      bad |= args.results[pair.result] != args.operands[pair.operand];
    }
    if (workspace_bytes_ > 0) bad |= !WorkspaceFits(args.workspace);
    if (bad) [[unlikely]]
      return -1;
    if ((any & aligned_mask_) == 0) return 0;
    return (misaligned | (any & promise_mask_)) == 0 ? unaligned_class_ : -1;
  }
  // The four-part message for addresses that Classify refused.
  Status Explain(const LaunchArgs& args) const;

 private:
  struct Tensor {
    bool is_result;
    uint32_t index;
    uintptr_t element_mask;  // element size - 1
  };
  struct InOut {
    uint32_t result, operand;
  };
  struct Names {
    std::string tensor;   // of tensors_, by position
    std::string operand;  // that it is written over, or empty
  };

  static uintptr_t AddressOf(const Tensor& tensor, const LaunchArgs& args) {
    return reinterpret_cast<uintptr_t>(tensor.is_result ? args.results[tensor.index]
                                                        : args.operands[tensor.index]);
  }
  static bool WorkspaceFits(const void* workspace) {
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    return address != 0 && address % kWorkspaceAlignment == 0;
  }

  Status ExplainInOut(const LaunchArgs& args) const;
  Status ExplainAlignment(const LaunchArgs& args) const;

  std::vector<Tensor> tensors_;  // present, with elements
  std::vector<InOut> in_out_;
  std::vector<Names> names_;  // apart, so that a launch does not walk over text
  int64_t workspace_bytes_;
  uintptr_t promise_mask_;  // promised alignment - 1
  uintptr_t aligned_mask_;  // the same of the first class: kVectorAlignment or what is promised
  int unaligned_class_;     // the resolution for less than kVectorAlignment; -1: there is none
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_ADDRESSES_H_
