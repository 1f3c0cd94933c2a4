// The one boxed kernel of all operators for eager calls (kbundle_torch.h says their form).
#ifndef KBUNDLE_FFI_EAGER_CALL_H_
#define KBUNDLE_FFI_EAGER_CALL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "sites.h"
#include "torch_functions.h"
#include "torch_launch.h"

namespace kbundle {

// Takes the arguments off the stack, makes the call that they mean where its plan is known, and
// puts results there: undefined ones where the call was not made. False: not even those could be
// made, and the stack holds nothing.
bool EagerCall(const TorchFunctions& torch, Sites* sites, StableValue* stack,
               uint64_t argument_count, uint64_t result_count) noexcept;

// Adds what a problem is to the key; false: PyTorch does not say it, or another tensor of the call
// was elsewhere. device: of the tensors before, type -1 before the first.
bool AddTensor(const TorchFunctions& torch, TorchTensor tensor, TorchDevice* device, EagerKey* key);

// A call that its site does not know, for TakeUnknownCall; site 0: there was none.
void SetUnknownCall(int64_t site, std::string key);

// What this thread's last call of the site did not know; empty where it knew all or was of another
// site. Asked once, it is gone.
std::optional<std::string> TakeUnknownCall(int64_t site);

// The same with the process's PyTorch and sites; torch: what LoadedTorch said, for ever.
void UseTorch(const TorchFunctions* torch);
const TorchFunctions& UsedTorch();
void EagerKernel(StableValue* stack, uint64_t argument_count, uint64_t result_count);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_EAGER_CALL_H_
