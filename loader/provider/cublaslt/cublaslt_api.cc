// libcublasLt is found, never linked. What the process has loaded wins: two copies would mean two
// sets of kernels on the device, and frameworks bring their own.
#include "kbundle/cublaslt_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <utility>

#include "loader/provider/cublaslt/cublaslt_symbols.h"
#include "loader/support/once_map.h"

namespace kbundle {
namespace {

constexpr const char* kLoaded[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr char kDefault[] = "libcublasLt.so.13";

template <typename Function>
Status Find(const SymbolLookup& lookup, const char* name, Function* member) {
  *member = reinterpret_cast<Function>(lookup(name));
  if (*member != nullptr) return Status();
  return FailedPrecondition(
      fmt::format("resolving cuBLASLt's functions: {} is missing; kbundle needs cuBLAS of CUDA 12 "
                  "or 13: install nvidia-cublas",
                  name));
}

Result<std::shared_ptr<const CublasLtApi>> Load() {
  const auto open = [](const char* soname, bool loaded_only) {
    return dlopen(soname, RTLD_NOW | (loaded_only ? RTLD_NOLOAD : RTLD_LOCAL));
  };
  KB_ASSIGN_OR_RETURN(void* library, OpenCublasLt(open, [] { return dlerror(); }));
  auto api = std::make_shared<CublasLtApi>();
  KB_RETURN_IF_ERROR(
      FillCublasLtApi([library](const char* name) { return dlsym(library, name); }, *api));
  api->library = library;
  return std::shared_ptr<const CublasLtApi>(std::move(api));
}

std::atomic<const CublasLtApi*> replacement{nullptr};

// What the caller can do about it decides the code.
StatusCode CodeOf(int status) {
  switch (status) {
    case 3:  // CUBLAS_STATUS_ALLOC_FAILED
      return StatusCode::kResourceExhausted;
    case kLtNotInitialized:
      return StatusCode::kUnavailable;
    default:  // internal errors too: they are cuBLAS's own, so another variant may do
      return StatusCode::kFailedPrecondition;
  }
}

}  // namespace

Result<void*> OpenCublasLt(const LibraryOpener& open, const std::function<const char*()>& why) {
  for (const char* soname : kLoaded) {
    if (void* library = open(soname, true)) return library;
  }
  if (void* library = open(kDefault, false)) return library;
  const char* reason = why();
  return Unavailable(fmt::format(
      "looking for cuBLASLt: this process has loaded neither {} nor {}, and the dynamic linker "
      "finds none ({}); install nvidia-cublas (pip) or CUDA 13's libcublas, or import the "
      "framework that brings it first",
      kLoaded[0], kLoaded[1], reason != nullptr ? reason : kDefault));
}

Status FillCublasLtApi(const SymbolLookup& lookup, CublasLtApi& api) {
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtGetStatusName", &api.StatusName));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtGetStatusString", &api.StatusString));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtGetVersion", &api.Version));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtCreate", &api.Create));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatrixLayoutInit_internal", &api.LayoutInit));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatrixLayoutSetAttribute", &api.LayoutSet));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulDescInit_internal", &api.DescInit));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulDescSetAttribute", &api.DescSet));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulAlgoCheck", &api.AlgorithmCheck));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulPreferenceInit_internal", &api.PreferenceInit));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulPreferenceSetAttribute", &api.PreferenceSet));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulAlgoGetHeuristic", &api.AlgorithmHeuristic));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulAlgoConfigGetAttribute", &api.AlgorithmConfig));
  KB_RETURN_IF_ERROR(Find(lookup, "cublasLtMatmulAlgoCapGetAttribute", &api.AlgorithmCapability));
  return Find(lookup, "cublasLtMatmul", &api.Multiply);
}

void CublasLtApi::Replace(const CublasLtApi* api) { replacement.store(api); }

// That there is none is no answer for ever: a framework may bring the library later.
Result<const CublasLtApi*> CublasLtApi::Get() {
  if (const CublasLtApi* api = replacement.load(std::memory_order_acquire)) return api;
  static OnceMap<int, const CublasLtApi>& found = *new OnceMap<int, const CublasLtApi>;
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<const CublasLtApi> api, found.GetOrMake(0, &Load));
  return api.get();
}

Status CublasLtApi::Check(int status, const std::string& doing) const {
  if (status == kLtSuccess) return Status();
  const char *name = StatusName(status), *text = StatusString(status);
  return Status(CodeOf(status),
                fmt::format("{}: {} ({}): {}", doing, name != nullptr ? name : "CUBLAS_STATUS",
                            status, text != nullptr ? text : "unknown error"));
}

std::string CublasVersionText(uint64_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace kbundle
