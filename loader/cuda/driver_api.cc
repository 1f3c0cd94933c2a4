// libcuda is found, never linked: the same loader runs on machines without a GPU.
#include "kbundle/driver_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "loader/cuda/driver_symbols.h"

namespace kbundle {
namespace {

constexpr char kNeeded[] = "R550 (CUDA 12.4)";  // cuFuncLoad and cuFuncGetParamInfo appeared there

std::string VersionText(const SymbolLookup& lookup) {
  auto get_version =
      reinterpret_cast<decltype(&::cuDriverGetVersion)>(lookup("cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != CUDA_SUCCESS) return "an unknown version";
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

Status Load(const SymbolLookup& lookup, const char* name, void** member) {
  *member = lookup(name);
  if (*member != nullptr) return Status();
  return FailedPrecondition(fmt::format(
      "resolving the NVIDIA driver's functions: {} is missing; this driver supports {}, kbundle "
      "needs {} or later: update the driver",
      name, VersionText(lookup), kNeeded));
}

Result<const DriverApi*> LoadOnce() {
  KB_ASSIGN_OR_RETURN(void* library, OpenDriverLibrary("libcuda.so.1"));
  static DriverApi api;
  KB_RETURN_IF_ERROR(
      FillDriverApi([library](const char* name) { return dlsym(library, name); }, api));
  return static_cast<const DriverApi*>(&api);
}

// What the caller can do about it decides the code.
StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return StatusCode::kResourceExhausted;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return StatusCode::kUnavailable;
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

Result<void*> OpenDriverLibrary(const char* soname) {
  void* library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* why = dlerror();
  return Unavailable(
      fmt::format("looking for the NVIDIA driver: no NVIDIA driver on this machine ({}); install "
                  "it, or ask for "
                  "the CPU",
                  why != nullptr ? why : soname));
}

Status FillDriverApi(const SymbolLookup& lookup, DriverApi& api) {
#define KB_LOAD_SYMBOL(member, symbol) \
  KB_RETURN_IF_ERROR(Load(lookup, #symbol, reinterpret_cast<void**>(&api.member)));
  KB_DRIVER_SYMBOLS(KB_LOAD_SYMBOL)
#undef KB_LOAD_SYMBOL
  return Status();
}

Result<const DriverApi*> DriverApi::Get() {
  static const Result<const DriverApi*>& api = *new Result<const DriverApi*>(LoadOnce());
  return api;
}

Status DriverApi::Check(CUresult result, const std::string& doing) const {
  if (result == CUDA_SUCCESS) return Status();
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "CUDA_ERROR";
  if (GetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  return Status(CodeOf(result),
                fmt::format("{}: {} ({}): {}", doing, name, static_cast<int>(result), text));
}

}  // namespace kbundle
