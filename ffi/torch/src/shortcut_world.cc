// A tensor of PyTorch's interface is the address of a pointer to what it holds; a Python object has
// such a pointer inside, so that its address is a tensor, which nobody need own.
#include "shortcut_world.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kbundle {
namespace {

PythonObject* None(const PythonFunctions& python) {
  python.AddReference(python.none);
  return python.none;
}

std::optional<std::vector<OwnedObject>> RunKnown(const ShortcutWorld& world,
                                                 PythonObject* const* arguments, intptr_t count) {
  int overflow = 0;
  EagerKey key;
  TorchDevice device;
  std::vector<TorchTensor> operands;
  for (intptr_t i = 1; i < count; ++i) {
    operands.push_back(TensorOf(world, arguments[i]));
    if (operands.back() == nullptr || !AddPlainTensor(world, operands.back(), &device, &key)) {
      return std::nullopt;
    }
  }
  if (operands.empty() || !key.fits()) return std::nullopt;
  const auto found = world.sites.Find(world.python.Integer(arguments[0], &overflow),
                                      kb_policy_generation(), key.bytes());
  if (!found.has_value() || found->plan == nullptr) return std::nullopt;
  const auto& results = found->plan->results;
  if (std::any_of(results.begin(), results.end(),
                  [](const EagerResult& one) { return one.alias >= 0; })) {
    return std::nullopt;
  }
  return LaunchShortcut(world, *found->plan, found->operand_count, *found->given, device, operands);
}

}  // namespace

TorchTensor TensorOf(const ShortcutWorld& world, const PythonObject* object) {
  if (object->type != world.layout.tensor_type && object->type != world.layout.parameter_type) {
    return nullptr;
  }
  const char* address = reinterpret_cast<const char*>(object) + world.layout.tensor_offset;
  return reinterpret_cast<TorchTensor>(const_cast<char*>(address));
}

uint64_t KeysOf(const ShortcutWorld& world, TorchTensor tensor) {
  uint64_t keys = 0;
  std::memcpy(&keys, *reinterpret_cast<char* const*>(tensor) + world.layout.keys_offset,
              sizeof(keys));
  return keys;
}

bool AddPlainTensor(const ShortcutWorld& world, TorchTensor tensor, TorchDevice* device,
                    EagerKey* key) {
  // Asked first: one that is sparse or nested has no sizes, and PyTorch prints where it is asked.
  const uint64_t keys = KeysOf(world, tensor);
  const bool like_cpu = (keys & ~world.layout.cpu_keys) == 0;
  const bool like_cuda = (keys & ~world.layout.cuda_keys) == 0;
  bool contiguous = false;
  if (!(like_cpu || like_cuda) || !AddTensor(world.torch, tensor, device, key) ||
      world.torch.IsContiguous(tensor, &contiguous) != 0 || !contiguous) {
    return false;
  }
  return device->type == world.torch.cuda ? like_cuda : device->type == world.torch.cpu && like_cpu;
}

std::optional<std::vector<OwnedObject>> LaunchShortcut(const ShortcutWorld& world,
                                                       const EagerPlan& plan, int32_t operand_count,
                                                       std::span<const int32_t> places,
                                                       TorchDevice device,
                                                       std::span<const TorchTensor> operands) {
  const PythonFunctions& python = world.python;
  std::vector<OwnedTensor> made;
  // Work for a microsecond is done before another thread could have the lock.
  void* lock = plan.few ? nullptr : python.GiveLock();
  const bool launched =
      LaunchContiguous(world.torch, plan, operand_count, places, device, operands, &made);
  if (lock != nullptr) python.TakeLock(lock);
  if (!launched) return std::nullopt;
  std::vector<OwnedObject> results(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i].get() == nullptr) continue;
    results[i] = OwnedObject(python, world.torch.Wrap(made[i].get()));
    if (results[i].get() == nullptr) return python.ClearError(), std::nullopt;
  }
  return results;
}

PythonObject* RunSite(const ShortcutWorld& world, PythonObject* const* arguments, intptr_t count) {
  const PythonFunctions& python = world.python;
  auto results = RunKnown(world, arguments, count);
  if (!results.has_value()) return None(python);
  if (results->size() == 1) {
    PythonObject* only = results->front().Give();
    return only == nullptr ? None(python) : only;
  }
  OwnedObject tuple(python, python.NewTuple(static_cast<intptr_t>(results->size())));
  if (tuple.get() == nullptr) return nullptr;
  for (size_t i = 0; i < results->size(); ++i) {
    PythonObject* item = (*results)[i].Give();
    if (item == nullptr) item = None(python);
    if (python.SetItem(tuple.get(), static_cast<intptr_t>(i), item) != 0) return nullptr;
  }
  return tuple.Give();
}

}  // namespace kbundle
