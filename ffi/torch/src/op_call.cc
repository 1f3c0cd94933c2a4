// Arguments stay the stack's until the call is made: one that is not made here is handed, as it
// came, to the operator that goes the long way.
#include "op_call.h"

#include <array>
#include <atomic>
#include <utility>

#include "eager_call.h"
#include "kbundle/kbundle_c.h"
#include "torch_launch.h"

namespace kbundle {
namespace {

// The shape of a result that a call does not have (ABSENT of kbundle/torch/_launch.py).
constexpr int kAbsentRank = 17;

struct Arguments {
  TorchDevice device;
  EagerKey key;
  std::vector<OwnedTensor> given;
  std::vector<int32_t> places;
};

bool IsTensor(ArgumentKind kind) {
  return kind == ArgumentKind::kTensor || kind == ArgumentKind::kOptionalTensor;
}

// Where the tensor of an argument stands; null: it is left out.
StableValue* TensorAt(ArgumentKind kind, StableValue* argument) {
  if (kind == ArgumentKind::kTensor) return argument;
  return reinterpret_cast<StableValue*>(*argument);
}

bool WantsGradients(const TorchFunctions& torch, const TorchOp& op, StableValue* stack) {
  if (!torch.IsGradEnabled()) return false;
  for (size_t i = 0; i < op.kinds.size(); ++i) {
    if (!IsTensor(op.kinds[i])) continue;
    const StableValue* at = TensorAt(op.kinds[i], stack + i);
    if (at != nullptr && torch.WantsGradient(reinterpret_cast<TorchTensor>(*at))) return true;
  }
  return false;
}

bool AddText(const TorchFunctions& torch, TorchText text, EagerKey* key) {
  size_t length = 0;
  const char* data = nullptr;
  if (torch.TextLength(text, &length) != 0 || torch.TextData(text, &data) != 0) return false;
  key->AddText({data, length});
  return true;
}

bool AddNumbers(const TorchFunctions& torch, TorchList list, EagerKey* key) {
  size_t size = 0;
  if (torch.ListSize(list, &size) != 0) return false;
  key->Add(static_cast<int64_t>(size));
  for (size_t i = 0; i < size && key->fits(); ++i) {
    StableValue item = 0;
    if (torch.ListItem(list, i, &item) != 0) return false;
    key->Add(static_cast<int64_t>(item));
  }
  return true;
}

// Everything but the tensors themselves, which ReadTensors takes.
bool ReadKey(const TorchFunctions& torch, const TorchOp& op, StableValue* stack, Arguments* out) {
  for (size_t i = 0; i < op.kinds.size(); ++i) {
    switch (op.kinds[i]) {
      case ArgumentKind::kTensor:
      case ArgumentKind::kOptionalTensor: {
        const StableValue* at = TensorAt(op.kinds[i], stack + i);
        out->key.Add(at != nullptr);
        if (at == nullptr) break;
        if (!AddTensor(torch, reinterpret_cast<TorchTensor>(*at), &out->device, &out->key)) {
          return false;
        }
        out->places.push_back(static_cast<int32_t>(i));
        break;
      }
      case ArgumentKind::kNumber:
        out->key.Add(static_cast<int64_t>(stack[i]));
        break;
      case ArgumentKind::kText:
        if (!AddText(torch, reinterpret_cast<TorchText>(stack[i]), &out->key)) return false;
        break;
      case ArgumentKind::kNumbers:
        if (!AddNumbers(torch, reinterpret_cast<TorchList>(stack[i]), &out->key)) return false;
        break;
    }
  }
  return !out->places.empty() && out->key.fits();
}

// All arguments but the tensors, which OwnedTensors give back.
void DeleteArguments(const TorchFunctions& torch, const TorchOp& op, const StableValue* stack) {
  for (size_t i = 0; i < op.kinds.size(); ++i) {
    if (op.kinds[i] == ArgumentKind::kOptionalTensor) {
      delete reinterpret_cast<StableValue*>(stack[i]);
    } else if (op.kinds[i] == ArgumentKind::kText) {
      torch.DeleteText(reinterpret_cast<TorchText>(stack[i]));
    } else if (op.kinds[i] == ArgumentKind::kNumbers) {
      torch.DeleteList(reinterpret_cast<TorchList>(stack[i]));
    }
  }
}

// Absent results are tensors here, of a shape that no other has.
bool FillAbsent(const TorchFunctions& torch, TorchDevice device, std::vector<OwnedTensor>* made) {
  static const std::vector<int64_t> dims(kAbsentRank), strides = DenseStrides(dims);
  for (OwnedTensor& result : *made) {
    if (result.get() != nullptr) continue;
    result = EmptyTensor(torch, dims, strides, torch.dtypes[static_cast<int>(DType::kU8)], device);
    if (result.get() == nullptr) return false;
  }
  return true;
}

// With the tensors in `given`, wherever that ends.
bool LaunchKnown(const TorchFunctions& torch, Sites* sites, const TorchOp& op, StableValue* stack,
                 Arguments* arguments, std::vector<OwnedTensor>* made) {
  SetUnknownCall(0, {});
  if (WantsGradients(torch, op, stack) || !ReadKey(torch, op, stack, arguments)) return false;
  const auto found = sites->Find(op.site, kb_policy_generation(), arguments->key.bytes());
  if (!found.has_value()) return false;
  if (found->plan == nullptr || !IsOfThisEnvironment(found->plan->environment)) {
    SetUnknownCall(op.site, std::string(arguments->key.bytes()));
    return false;
  }
  arguments->given.reserve(arguments->places.size());  // from here on nothing is lost
  for (const int32_t place : arguments->places) {
    StableValue* at = TensorAt(op.kinds[place], stack + place);
    arguments->given.emplace_back(torch, reinterpret_cast<TorchTensor>(*at));
  }
  return LaunchEager(torch, *found->plan, op.operand_count, arguments->places, arguments->device,
                     arguments->given, made) &&
         FillAbsent(torch, arguments->device, made);
}

thread_local std::string failure;

// What went wrong, or null.
[[gnu::noinline]] const char* Run(const TorchFunctions& torch, const TorchOp& op,
                                  StableValue* stack, uint64_t result_count) noexcept {
  if (OpCall(torch, &Sites::Global(), op, stack, result_count)) return nullptr;
  failure.clear();
  const int failed =
      torch.CallDispatcher(op.long_name.c_str(), op.overload.c_str(), stack, kTorchVersion);
  if (failed != 0) {
    return "[kbundle:INTERNAL] a call went the long way and came to no end; what PyTorch wrote to "
           "the standard error says why";
  }
  if (failure.empty()) return nullptr;
  for (uint64_t i = 0; i < result_count; ++i) {
    torch.Delete(reinterpret_cast<TorchTensor>(stack[i]));
  }
  return failure.c_str();
}

std::array<std::atomic<const TorchOp*>, kMostOps> ops;

// Check's exception passes this frame, which has nothing to clean up and so no handler that could
// be another C++ library's: Run is not to become part of it.
template <int index>
void Kernel(StableValue* stack, uint64_t, uint64_t result_count) {
  const TorchFunctions& torch = UsedTorch();
  const TorchOp& op = *ops[index].load(std::memory_order_acquire);
  const char* failed = Run(torch, op, stack, result_count);
  if (failed != nullptr) torch.Check(false, __func__, __FILE__, __LINE__, failed);
}

template <int... indexes>
constexpr std::array<BoxedKernel, sizeof...(indexes)> Kernels(
    std::integer_sequence<int, indexes...>) {
  return {&Kernel<indexes>...};
}
constexpr auto kKernels = Kernels(std::make_integer_sequence<int, kMostOps>());

}  // namespace

bool OpCall(const TorchFunctions& torch, Sites* sites, const TorchOp& op, StableValue* stack,
            uint64_t result_count) noexcept {
  Arguments arguments;
  std::vector<OwnedTensor> made;
  bool right = false;
  try {
    right = LaunchKnown(torch, sites, op, stack, &arguments, &made) && made.size() == result_count;
  } catch (...) {  // memory has run out, here or where the long way will find it
  }
  if (right) {
    DeleteArguments(torch, op, stack);
    for (uint64_t i = 0; i < result_count; ++i) {
      stack[i] = reinterpret_cast<StableValue>(made[i].Give());
    }
    return true;
  }
  for (size_t i = 0; i < arguments.given.size(); ++i) {  // some may be copies by now
    const int32_t place = arguments.places[i];
    *TensorAt(op.kinds[place], stack + place) =
        reinterpret_cast<StableValue>(arguments.given[i].Give());
  }
  return false;
}

Result<BoxedKernel> MakeOpKernel(TorchOp op) {
  static std::atomic<int> used{0};
  const int index = used.fetch_add(1);
  if (index >= kMostOps) {
    used.store(kMostOps);
    return Status(StatusCode::kResourceExhausted,
                  "making a kernel of PyTorch for an op: all " + std::to_string(kMostOps) +
                      " that a process has are in use; calls of this op go the long way");
  }
  ops[index].store(new TorchOp(std::move(op)), std::memory_order_release);  // for ever
  return kKernels[index];
}

void SetOpFailure(std::string text) { failure = std::move(text); }

}  // namespace kbundle
