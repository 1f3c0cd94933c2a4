// Boxed kernels of the operators that ops are: torch.ops.kbundle.<family>_<op>, whose arguments are
// operands, attributes and the name of a bundle.
//
// PyTorch gives a kernel nothing but the stack, so each operator has a function of its own: there
// are kMostOps of them, made beforehand.
#ifndef KBUNDLE_FFI_OP_CALL_H_
#define KBUNDLE_FFI_OP_CALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kbundle/status.h"
#include "sites.h"
#include "torch_functions.h"

namespace kbundle {

constexpr int kMostOps = 512;

enum class ArgumentKind : int32_t { kTensor, kOptionalTensor, kNumber, kText, kNumbers };

// An operator. Operands are its first arguments; the last is the name of the bundle.
struct TorchOp {
  std::vector<ArgumentKind> kinds;
  int32_t operand_count = 0;
  int64_t site = 0;
  // The operator that makes calls which the site does not know, or whose gradients are wanted.
  std::string long_name, overload;
};

// Makes a call whose plan is known: true, and the stack holds results. False: it holds what it did.
bool OpCall(const TorchFunctions& torch, Sites* sites, const TorchOp& op, StableValue* stack,
            uint64_t result_count) noexcept;

// The kernel of the operator with that number, which is kept; the numbers are used up one by one.
Result<BoxedKernel> MakeOpKernel(TorchOp op);

// What this thread's next kernel that fails says.
void SetOpFailure(std::string text);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_OP_CALL_H_
