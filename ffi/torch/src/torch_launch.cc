// What a launch needs that the plan does not bring, by PyTorch's own means: its allocator (so a
// CUDA graph's pool), its stream, its threads. Memory is given back in stream order, as ever there.
#include "torch_launch.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace kbundle {
namespace {

constexpr int64_t kWorkspaceAlignment = 256;
// The address of tensors without elements, where nobody reads.
alignas(kWorkspaceAlignment) std::array<char, kWorkspaceAlignment> nowhere;

void* AddressOr(void* address) { return address == nullptr ? nowhere.data() : address; }

// A tensor of its own that holds the same, row after row.
bool CopyOver(const TorchFunctions& torch, TorchDevice device, OwnedTensor* tensor) {
  int32_t dtype = 0;
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  if (torch.GetDtype(tensor->get(), &dtype) != 0 || torch.GetDim(tensor->get(), &rank) != 0 ||
      torch.GetSizes(tensor->get(), &sizes) != 0) {
    return false;
  }
  const std::vector<int64_t> dims(sizes, sizes + rank);
  OwnedTensor copy = EmptyTensor(torch, dims, DenseStrides(dims), dtype, device);
  if (copy.get() == nullptr || torch.Copy(copy.get(), tensor->get(), 0) != 0) return false;
  *tensor = std::move(copy);
  return true;
}

bool MakeContiguous(const TorchFunctions& torch, TorchDevice device,
                    std::vector<OwnedTensor>& given) {
  for (OwnedTensor& tensor : given) {
    bool contiguous = false;
    if (torch.IsContiguous(tensor.get(), &contiguous) != 0) return false;
    if (!contiguous && !CopyOver(torch, device, &tensor)) return false;
  }
  return true;
}

// Those written over an operand are that operand's copy.
bool AllocateResults(const TorchFunctions& torch, const EagerPlan& plan, TorchDevice device,
                     std::vector<OwnedTensor>& given, std::vector<OwnedTensor>* made) {
  made->reserve(plan.results.size());
  for (const EagerResult& result : plan.results) {
    OwnedTensor& next = made->emplace_back();
    if (!result.present) continue;
    if (result.alias >= 0) {
      if (static_cast<size_t>(result.alias) >= given.size()) return false;
      OwnedTensor& over = given[result.alias];
      TorchTensor same = nullptr;
      if (!CopyOver(torch, device, &over) || torch.NewReference(over.get(), &same) != 0) {
        return false;
      }
      next = OwnedTensor(torch, same);
      continue;
    }
    next = EmptyTensor(torch, result.dims, result.strides, result.dtype, device);
    if (next.get() == nullptr) return false;
    if (!plan.plan.has_value() && torch.Zero(next.get()) != 0) return false;
  }
  return true;
}

// In whole grains, so that no part but the last is smaller than one.
void ParallelFor(void* state, int64_t count, int64_t grain,
                 void (*body)(void* context, int64_t begin, int64_t end), void* context) {
  struct Loop {
    int64_t count, grain;
    void (*body)(void* context, int64_t begin, int64_t end);
    void* context;
  } loop{count, std::max<int64_t>(grain, 1), body, context};
  const auto* torch = static_cast<const TorchFunctions*>(state);
  const auto run = [](int64_t begin, int64_t end, void* of) {
    const Loop& all = *static_cast<const Loop*>(of);
    all.body(all.context, begin * all.grain, std::min(end * all.grain, all.count));
  };
  if (count <= 0) return;
  torch->ParallelFor(0, (count - 1) / loop.grain + 1, 1, run, &loop);
}

class CudaGuard {
 public:
  explicit CudaGuard(const TorchFunctions& torch) : torch_(torch) {}
  CudaGuard(const CudaGuard&) = delete;
  CudaGuard& operator=(const CudaGuard&) = delete;
  ~CudaGuard() {
    if (guard_ != nullptr) torch_.DeleteCudaGuard(guard_);
  }
  // Makes the device the thread's, until the guard ends.
  bool Enter(int32_t device) {
    int32_t current = -1;
    if (torch_.GetCurrentDevice(&current) != 0) return false;
    return current == device || torch_.NewCudaGuard(device, &guard_) == 0;
  }

 private:
  const TorchFunctions& torch_;
  TorchGuard guard_ = nullptr;
};

// The error is the long way's to say.
bool Succeeded(kb_error* error) {
  if (error == nullptr) return true;
  kb_error_free(error);
  return false;
}

bool LaunchPlan(const TorchFunctions& torch, const EagerPlan& plan, TorchDevice device,
                void* const* operands, void* const* results) {
  OwnedTensor held;
  void* workspace = nullptr;
  if (const int64_t bytes = kb_plan_workspace_bytes(&*plan.plan); bytes > 0) {
    held = EmptyTensor(torch, {bytes + kWorkspaceAlignment}, {1},
                       torch.dtypes[static_cast<int>(DType::kU8)], device);
    if (held.get() == nullptr || torch.GetMutableData(held.get(), &workspace) != 0) return false;
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    workspace = reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) &
                                        ~static_cast<uintptr_t>(kWorkspaceAlignment - 1));
  }
  if (device.type == torch.cuda) {
    void* stream = nullptr;
    return torch.GetCurrentStream(device.index, &stream) == 0 &&
           Succeeded(kb_plan_launch_cuda(&*plan.plan, static_cast<CUstream_st*>(stream), operands,
                                         results, workspace));
  }
  const kb_host_executor threads{&ParallelFor, const_cast<TorchFunctions*>(&torch)};
  return Succeeded(kb_plan_launch_host(&*plan.plan, plan.few ? nullptr : &threads, operands,
                                       results, workspace));
}

// Whatever there is to compute, of operands and into results that are as the plan has them.
bool Compute(const TorchFunctions& torch, const EagerPlan& plan, int32_t operand_count,
             std::span<const int32_t> places, TorchDevice device,
             std::span<const TorchTensor> given, const std::vector<OwnedTensor>& made) {
  if (!plan.plan.has_value()) return true;
  std::vector<void*> operands(operand_count), results(made.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const void* address = nullptr;
    if (torch.GetConstData(given[i], &address) != 0) return false;
    operands[places[i]] = AddressOr(const_cast<void*>(address));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (made[i].get() == nullptr) continue;
    if (torch.GetMutableData(made[i].get(), &results[i]) != 0) return false;
    results[i] = AddressOr(results[i]);
  }
  return LaunchPlan(torch, plan, device, operands.data(), results.data());
}

}  // namespace

OwnedTensor EmptyTensor(const TorchFunctions& torch, const std::vector<int64_t>& dims,
                        const std::vector<int64_t>& strides, int32_t dtype, TorchDevice device) {
  TorchTensor made = nullptr;
  if (torch.EmptyStrided(static_cast<int64_t>(dims.size()), dims.data(), strides.data(), dtype,
                         device.type, device.index, &made) != 0) {
    return {};
  }
  return {torch, made};
}

bool LaunchEager(const TorchFunctions& torch, const EagerPlan& plan, int32_t operand_count,
                 const std::vector<int32_t>& places, TorchDevice device,
                 std::vector<OwnedTensor>& given, std::vector<OwnedTensor>* made) {
  CudaGuard guard(torch);
  if (device.type == torch.cuda && (!torch.has_cuda() || !guard.Enter(device.index))) return false;
  if (!MakeContiguous(torch, device, given) || !AllocateResults(torch, plan, device, given, made)) {
    return false;
  }
  std::vector<TorchTensor> tensors;
  tensors.reserve(given.size());
  for (const OwnedTensor& tensor : given) tensors.push_back(tensor.get());
  return Compute(torch, plan, operand_count, places, device, tensors, *made);
}

bool LaunchContiguous(const TorchFunctions& torch, const EagerPlan& plan, int32_t operand_count,
                      std::span<const int32_t> places, TorchDevice device,
                      std::span<const TorchTensor> given, std::vector<OwnedTensor>* made) {
  CudaGuard guard(torch);
  if (device.type == torch.cuda && (!torch.has_cuda() || !guard.Enter(device.index))) return false;
  std::vector<OwnedTensor> nobody;
  return AllocateResults(torch, plan, device, nobody, made) &&
         Compute(torch, plan, operand_count, places, device, given, *made);
}

}  // namespace kbundle
