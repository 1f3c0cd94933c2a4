// A call must leave PyTorch's stack with results whatever happens, and no exception of ours may
// meet PyTorch's code, nor one of PyTorch's a frame of ours that has something to clean up: the
// two may come from different C++ libraries. So failures are values here, and all of them mean the
// same: results that are undefined, upon which the caller goes the long way and finds out why.
#include "eager_call.h"

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "torch_launch.h"

namespace kbundle {
namespace {

struct UnknownCall {
  int64_t site = 0;
  std::string key;
};
thread_local UnknownCall unknown_call;

std::atomic<const TorchFunctions*> torch_of_process{nullptr};

// What the call is given, read once.
bool ReadGiven(const TorchFunctions& torch, std::vector<OwnedTensor>& given, EagerKey* key,
               TorchDevice* device) {
  for (const OwnedTensor& tensor : given) {
    if (!AddTensor(torch, tensor.get(), device, key)) return false;
  }
  return !given.empty() && key->fits();
}

// Results in `made`, as many as the plan has; false leaves them as they are.
bool Call(const TorchFunctions& torch, Sites* sites, int64_t site, std::vector<OwnedTensor>& given,
          std::vector<OwnedTensor>* made) {
  EagerKey key;
  TorchDevice device;
  SetUnknownCall(0, {});
  if (!ReadGiven(torch, given, &key, &device)) return false;
  const auto found = sites->Find(site, kb_policy_generation(), key.bytes());
  if (!found.has_value()) return false;
  if (found->plan == nullptr) {
    SetUnknownCall(site, std::string(key.bytes()));
    return false;
  }
  return LaunchEager(torch, *found->plan, found->operand_count, *found->given, device, given, made);
}

}  // namespace

bool AddTensor(const TorchFunctions& torch, TorchTensor tensor, TorchDevice* device,
               EagerKey* key) {
  TorchDevice own;
  int32_t dtype = 0;
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  if (torch.GetDeviceType(tensor, &own.type) != 0 ||
      torch.GetDeviceIndex(tensor, &own.index) != 0 || torch.GetDtype(tensor, &dtype) != 0 ||
      torch.GetDim(tensor, &rank) != 0 || torch.GetSizes(tensor, &sizes) != 0) {
    return false;
  }
  if (device->type < 0) {
    *device = own;
    key->Add(own.type);
    key->Add(own.index);
  } else if (own.type != device->type || own.index != device->index) {
    return false;
  }
  key->Add(dtype);
  key->Add(rank);
  for (int64_t axis = 0; axis < rank; ++axis) key->Add(sizes[axis]);
  return true;
}

void SetUnknownCall(int64_t site, std::string key) { unknown_call = {site, std::move(key)}; }

// No part of EagerKernel: see there.
[[gnu::noinline]] bool EagerCall(const TorchFunctions& torch, Sites* sites, StableValue* stack,
                                 uint64_t argument_count, uint64_t result_count) noexcept {
  const auto site = static_cast<int64_t>(stack[0]);
  std::vector<OwnedTensor> given, made;
  bool right = false;
  try {
    given.reserve(argument_count);
    for (uint64_t i = 1; i < argument_count; ++i) {
      given.emplace_back(torch, reinterpret_cast<TorchTensor>(stack[i]));
    }
    right = Call(torch, sites, site, given, &made) && made.size() == result_count;
  } catch (...) {  // memory has run out, here or where the long way will find it
  }
  if (!right) made.clear();
  for (uint64_t i = 0; i < result_count; ++i) {
    TorchTensor result = i < made.size() ? made[i].Give() : nullptr;
    if (result == nullptr && torch.NewUndefined(&result) != 0) {
      for (uint64_t earlier = 0; earlier < i; ++earlier) {
        torch.Delete(reinterpret_cast<TorchTensor>(stack[earlier]));
      }
      return false;
    }
    stack[i] = reinterpret_cast<StableValue>(result);
  }
  return true;
}

std::optional<std::string> TakeUnknownCall(int64_t site) {
  if (site == 0 || unknown_call.site != site) return std::nullopt;
  unknown_call.site = 0;
  return std::move(unknown_call.key);
}

void UseTorch(const TorchFunctions* torch) { torch_of_process.store(torch); }

const TorchFunctions& UsedTorch() { return *torch_of_process.load(); }

// Check's exception passes this frame: it has nothing to clean up, and so no handler.
void EagerKernel(StableValue* stack, uint64_t argument_count, uint64_t result_count) {
  const TorchFunctions& torch = UsedTorch();
  if (EagerCall(torch, &Sites::Global(), stack, argument_count, result_count)) return;
  torch.Check(false, __func__, __FILE__, __LINE__, "[kbundle:RESOURCE_EXHAUSTED] out of memory");
}

}  // namespace kbundle
