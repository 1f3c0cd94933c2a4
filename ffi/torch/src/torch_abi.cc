// kbundle_torch.h: what Python tells the boxed kernel, checked, since it reads as C.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eager_call.h"
#include "handles.h"
#include "kbundle/kbundle_torch.h"
#include "op_call.h"
#include "sites.h"
#include "torch_functions.h"

namespace kbundle {
namespace {

constexpr char kEager[] = "kbundle_eager", kOps[] = "kbundle", kRules[] = "kbundle_rules";
constexpr char kLong[] = "kbundle_long::";
constexpr int32_t kMostRank = 64;

Status Implement(const TorchFunctions& torch, const char* space, const char* name, const char* key,
                 BoxedKernel kernel) {
  TorchLibrary library = nullptr;  // ours to keep: without it the kernel is taken away
  if (torch.LibraryInit(space, key, __FILE__, __LINE__, &library) != 0 ||
      torch.LibraryImpl(library, name, kernel, kTorchVersion) != 0) {
    return Internal(std::string("giving operator ") + space + "::" + name + " a kernel for " + key +
                    ": PyTorch refused it; what it wrote to the standard error says why");
  }
  return Status();
}

// For both kinds of device.
Status Implement(const TorchFunctions& torch, const char* space, const char* name, bool cuda,
                 BoxedKernel kernel) {
  KB_RETURN_IF_ERROR(Implement(torch, space, name, "CPU", kernel));
  if (cuda) KB_RETURN_IF_ERROR(Implement(torch, space, name, "CUDA", kernel));
  return Status();
}

Result<TorchOp> ToOp(std::string_view name, const int32_t* kinds, size_t count) {
  TorchOp op;
  const size_t point = name.find('.');
  op.long_name = kLong + std::string(name.substr(0, point));
  if (point != std::string_view::npos) op.overload = name.substr(point + 1);
  for (size_t i = 0; i < count; ++i) {
    if (kinds[i] < 0 || kinds[i] > static_cast<int32_t>(ArgumentKind::kNumbers)) {
      return InvalidArgument("giving operator " + std::string(name) + " a kernel: argument " +
                             std::to_string(i) + " is of kind " + std::to_string(kinds[i]) +
                             "; there are 0 to 4");
    }
    op.kinds.push_back(static_cast<ArgumentKind>(kinds[i]));
    const bool is_operand = op.kinds[i] <= ArgumentKind::kOptionalTensor;
    if (is_operand && op.operand_count != static_cast<int32_t>(i)) {
      return InvalidArgument("giving operator " + std::string(name) + " a kernel: operand " +
                             std::to_string(i) + " comes after an attribute; operands go first");
    }
    op.operand_count += is_operand ? 1 : 0;
  }
  op.site = Sites::Global().Make(op.operand_count, {});
  return op;
}

Result<EagerResult> ToResult(const TorchFunctions& torch, const kb_tensor& tensor, int32_t alias) {
  EagerResult result;
  result.present = tensor.present != 0;
  if (!result.present) return result;
  const std::string doing = "learning a call: ";
  if (tensor.dtype < 0 || tensor.dtype >= kDTypeCount || tensor.rank < 0 ||
      tensor.rank > kMostRank || (tensor.rank > 0 && tensor.dims == nullptr)) {
    return InvalidArgument(doing + "a result is of dtype " + std::to_string(tensor.dtype) +
                           " and rank " + std::to_string(tensor.rank) +
                           "; these are no tensor's: give what kb_infer says");
  }
  result.dtype = torch.dtypes[tensor.dtype];
  if (result.dtype < 0) {
    return Unimplemented(doing + "a result is " +
                         std::string(Name(static_cast<DType>(tensor.dtype))) +
                         ", which this PyTorch cannot allocate by its C interface; update it");
  }
  result.alias = alias;
  result.dims.assign(tensor.dims, tensor.dims + tensor.rank);
  result.strides = DenseStrides(result.dims);
  return result;
}

}  // namespace
}  // namespace kbundle

using kbundle::Guarded;
using kbundle::LoadedTorch;
using kbundle::RequirePointer;
using kbundle::Sites;
using kbundle::Status;

extern "C" {

kb_error* kb_torch_load(int32_t* cuda) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(cuda, "cuda"));
    KB_ASSIGN_OR_RETURN(const kbundle::TorchFunctions* torch, LoadedTorch());
    kbundle::UseTorch(torch);
    *cuda = torch->has_cuda() ? 1 : 0;
    return Status();
  });
}

kb_error* kb_torch_implement(const char* name, int32_t cuda) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(name, "name"));
    KB_ASSIGN_OR_RETURN(const kbundle::TorchFunctions* torch, LoadedTorch());
    return kbundle::Implement(*torch, kbundle::kEager, name, cuda != 0, &kbundle::EagerKernel);
  });
}

int32_t kb_torch_wants_gradient(void* tensor) {
  const auto torch = LoadedTorch();
  if (!torch.ok() || torch.value()->RequiresGrad == nullptr || tensor == nullptr) return -1;
  return torch.value()->WantsGradient(static_cast<kbundle::TorchTensor>(tensor)) ? 1 : 0;
}

kb_error* kb_torch_implement_op(const char* name, const int32_t* kinds, size_t count, int32_t cuda,
                                int64_t* site) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(name, "name"));
    KB_RETURN_IF_ERROR(RequirePointer(kinds, "kinds"));
    KB_RETURN_IF_ERROR(RequirePointer(site, "site"));
    KB_ASSIGN_OR_RETURN(const kbundle::TorchFunctions* torch, LoadedTorch());
    KB_ASSIGN_OR_RETURN(kbundle::TorchOp op, kbundle::ToOp(name, kinds, count));
    *site = op.site;
    KB_ASSIGN_OR_RETURN(const auto kernel, kbundle::MakeOpKernel(std::move(op)));
    KB_RETURN_IF_ERROR(kbundle::Implement(*torch, kbundle::kOps, name, cuda != 0, kernel));
    return kbundle::Implement(*torch, kbundle::kRules, name, cuda != 0, kernel);
  });
}

void kb_torch_fail(const char* text) {
  kbundle::SetOpFailure(text == nullptr ? "[kbundle:INTERNAL] a failure without a text" : text);
}

void kb_torch_forget(void) { Sites::Global().Forget(); }

kb_error* kb_torch_site_make(int32_t operand_count, const int32_t* given, size_t given_count,
                             int64_t* site) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(site, "site"));
    if (given_count > 0) KB_RETURN_IF_ERROR(RequirePointer(given, "given"));
    std::vector<int32_t> indexes(given, given + given_count);
    int32_t before = -1;
    for (const int32_t index : indexes) {
      if (index <= before || index >= operand_count) {
        return kbundle::InvalidArgument("making a site: operand " + std::to_string(index) +
                                        " is given after " + std::to_string(before) + ", of " +
                                        std::to_string(operand_count) +
                                        "; give their indexes once each, ascending");
      }
      before = index;
    }
    *site = Sites::Global().Make(operand_count, std::move(indexes));
    return Status();
  });
}

void kb_torch_site_release(int64_t site) { Sites::Global().Release(site); }

kb_error* kb_torch_learn(int64_t site, uint64_t generation, const kb_plan* plan,
                         const kb_tensor* results, const int32_t* aliases, size_t result_count,
                         int32_t few, const char* environment) {
  return Guarded([&]() -> Status {
    KB_ASSIGN_OR_RETURN(const kbundle::TorchFunctions* torch, LoadedTorch());
    if (result_count > 0) {
      KB_RETURN_IF_ERROR(RequirePointer(results, "results"));
      KB_RETURN_IF_ERROR(RequirePointer(aliases, "aliases"));
    }
    auto key = kbundle::TakeUnknownCall(site);
    if (!key.has_value()) {
      return kbundle::FailedPrecondition(
          "learning a call of site " + std::to_string(site) +
          ": this thread's last call was not one that it did not know; call its operator first");
    }
    kbundle::EagerPlan learned;
    if (plan != nullptr) learned.plan = *plan;
    learned.few = few != 0;
    if (environment != nullptr) learned.environment = environment;
    for (size_t i = 0; i < result_count; ++i) {
      KB_ASSIGN_OR_RETURN(auto result, kbundle::ToResult(*torch, results[i], aliases[i]));
      learned.results.push_back(std::move(result));
    }
    Sites::Global().Learn(site, generation, *std::move(key), std::move(learned));
    return Status();
  });
}

}  // extern "C"
