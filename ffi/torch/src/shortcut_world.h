// What shortcuts know of Python's and PyTorch's objects, and the call that needs no more: of a site
// whose operands are given.
#ifndef KBUNDLE_FFI_SHORTCUT_WORLD_H_
#define KBUNDLE_FFI_SHORTCUT_WORLD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "eager_call.h"
#include "python_functions.h"
#include "sites.h"
#include "torch_functions.h"
#include "torch_launch.h"

namespace kbundle {

// Where things are in PyTorch's objects, tried by Python before.
struct ShortcutLayout {
  PythonObject *tensor_type = nullptr, *parameter_type = nullptr, *dtype_type = nullptr;
  int64_t tensor_offset = 0;              // of the tensor in its Python object
  int64_t keys_offset = 0;                // of the dispatch keys in what a tensor points to
  uint64_t cpu_keys = 0, cuda_keys = 0;   // a tensor with others is for the dispatcher
  PythonObject* differentiate = nullptr;  // (site, tensor, ..): results in a tuple, with gradients
};

// What the kernels of shortcuts use; seams for tests.
struct ShortcutWorld {
  const PythonFunctions& python;
  const TorchFunctions& torch;
  Sites& sites;
  ShortcutLayout layout;
};

// The tensor of a Python object, which lives as long as that does; null: it is none of torch's own
// two types.
TorchTensor TensorOf(const ShortcutWorld& world, const PythonObject* object);
// Its dispatch keys.
uint64_t KeysOf(const ShortcutWorld& world, TorchTensor tensor);
// Adds what a problem is to the key. False where the dispatcher is needed: the tensor is lazily
// something else, or of another device than those before, or does not lie row after row.
bool AddPlainTensor(const ShortcutWorld& world, TorchTensor tensor, TorchDevice* device,
                    EagerKey* key);

// Results of a plan, one for each of its own, with nothing where that is absent. nullopt: something
// failed. The lock is another thread's meanwhile, if there is work for one.
std::optional<std::vector<OwnedObject>> LaunchShortcut(const ShortcutWorld& world,
                                                       const EagerPlan& plan, int32_t operand_count,
                                                       std::span<const int32_t> places,
                                                       TorchDevice device,
                                                       std::span<const TorchTensor> operands);

// The results of a site's known call as its operator gives them, a new reference; None where the
// operator is to be asked. arguments: the site's number, then its operands.
PythonObject* RunSite(const ShortcutWorld& world, PythonObject* const* arguments, intptr_t count);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_SHORTCUT_WORLD_H_
