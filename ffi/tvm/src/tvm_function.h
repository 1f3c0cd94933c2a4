// An op as a function of tvm-ffi: kbundle_tvm.h says what a call gives.
#ifndef KBUNDLE_FFI_TVM_FUNCTION_H_
#define KBUNDLE_FFI_TVM_FUNCTION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "handles.h"
#include "kbundle/problem.h"
#include "kbundle/runtime.h"
#include "tvm_functions.h"

namespace kbundle {

// A call, sorted: tensors in the op's order, null where left out, and what makes its problem.
struct TvmArguments {
  int32_t device_type = 0, device = 0;
  std::vector<const DlTensor*> operands;
  std::vector<std::pair<const DlTensor*, TensorSpec>> results;  // as they were given
  ProblemSpec spec;
  std::string key;  // equal keys, equal problems on one device
};

// Immutable but for its plans. Calls may run at once, from any thread.
class TvmFunction {
 public:
  // given: which of the op's operands calls have. tvm outlives the function.
  static Result<std::unique_ptr<TvmFunction>> Make(const TvmFunctions* tvm,
                                                   std::shared_ptr<const Parts> parts,
                                                   const std::string& op, ProblemSpec given);

  Status Call(const TvmAny* arguments, int32_t count);
  const TvmFunctions& tvm() const { return *tvm_; }

 private:
  // A plan and what it is of. plan null: no result has an element.
  struct Known {
    Problem problem;
    std::unique_ptr<kb_plan> plan;
    int threads = 1;
  };

  TvmFunction() = default;
  Result<TvmArguments> Sort(const TvmAny* arguments, int32_t count) const;
  Result<TensorSpec> Look(const TvmAny& argument, const std::string& what,
                          TvmArguments* call) const;
  Status AddAttributes(const TvmAny* values, int32_t count, TvmArguments* call) const;
  Result<std::shared_ptr<const Known>> Find(const TvmArguments& call);
  Result<std::shared_ptr<const Known>> MakeKnown(const TvmArguments& call) const;
  Status PlaceResults(const Problem& problem, TvmArguments* call) const;
  std::string ToString() const;  // "calling op 'f.x'"

  const TvmFunctions* tvm_ = nullptr;
  std::shared_ptr<const Parts> parts_;
  uint32_t op_ = 0;
  std::string op_name_;
  ProblemSpec fixed_;              // the operands that calls have, the attributes of every call
  std::vector<std::string> open_;  // attributes that calls may give, in the op's order

  std::mutex mutex_;
  uint64_t generation_ = 0;  // of the policy that the plans were made under
  std::unordered_map<std::string, std::shared_ptr<const Known>> plans_;
};

}  // namespace kbundle

#endif  // KBUNDLE_FFI_TVM_FUNCTION_H_
