// kbundle_torch.h: what Python tells the boxed kernel, checked, since it reads as C.
#include <string>
#include <utility>
#include <vector>

#include "eager_call.h"
#include "handles.h"
#include "kbundle/kbundle_torch.h"
#include "sites.h"
#include "torch_functions.h"

namespace kbundle {
namespace {

constexpr char kSpace[] = "kbundle_eager";
constexpr uint64_t kTorchVersion = uint64_t{2} << 56 | uint64_t{10} << 48;  // whose rules we follow
constexpr int32_t kMostRank = 64;

Status Implement(const TorchFunctions& torch, const char* name, const char* key) {
  TorchLibrary library = nullptr;  // ours to keep: without it the kernel is taken away
  if (torch.LibraryInit(kSpace, key, __FILE__, __LINE__, &library) != 0 ||
      torch.LibraryImpl(library, name, &EagerKernel, kTorchVersion) != 0) {
    return Internal(std::string("giving operator ") + kSpace + "::" + name + " a kernel for " +
                    key + ": PyTorch refused it; what it wrote to the standard error says why");
  }
  return Status();
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
    KB_RETURN_IF_ERROR(kbundle::Implement(*torch, name, "CPU"));
    if (cuda != 0) KB_RETURN_IF_ERROR(kbundle::Implement(*torch, name, "CUDA"));
    return Status();
  });
}

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
                         int32_t few) {
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
    for (size_t i = 0; i < result_count; ++i) {
      KB_ASSIGN_OR_RETURN(auto result, kbundle::ToResult(*torch, results[i], aliases[i]));
      learned.results.push_back(std::move(result));
    }
    Sites::Global().Learn(site, generation, *std::move(key), std::move(learned));
    return Status();
  });
}

}  // extern "C"
