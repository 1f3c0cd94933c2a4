// The one boxed kernel of all operators for eager calls (kbundle_torch.h says their form).
#ifndef KBUNDLE_FFI_EAGER_CALL_H_
#define KBUNDLE_FFI_EAGER_CALL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "sites.h"
#include "torch_functions.h"

namespace kbundle {

// Takes the arguments off the stack, makes the call that they mean where its plan is known, and
// puts results there: undefined ones where the call was not made. False: not even those could be
// made, and the stack holds nothing.
bool EagerCall(const TorchFunctions& torch, Sites* sites, StableValue* stack,
               uint64_t argument_count, uint64_t result_count) noexcept;

// What this thread's last call of the site did not know; empty where it knew all or was of another
// site. Asked once, it is gone.
std::optional<std::string> TakeUnknownCall(int64_t site);

// The same with the process's PyTorch and sites; torch: what LoadedTorch said, for ever.
void UseTorch(const TorchFunctions* torch);
void EagerKernel(StableValue* stack, uint64_t argument_count, uint64_t result_count);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_EAGER_CALL_H_
