// nvFatbin wraps whatever it is given, and a mistake would show on a user's GPU: so the text is
// looked at first (PTX, of its architecture, one NUL at its end). The library, once open, stays
// open.
#include "builder/provider/cuda/nvfatbin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>

namespace kbundle::builder {
namespace {

// nvFatbinResult and nvFatbinHandle of nvFatbin.h 13.0.
using FatbinCode = int;
using FatbinHandle = struct FatbinTag*;

struct Functions {
  const char* (*GetErrorString)(FatbinCode) = nullptr;
  FatbinCode (*Create)(FatbinHandle*, const char**, size_t) = nullptr;
  FatbinCode (*Destroy)(FatbinHandle*) = nullptr;
  FatbinCode (*AddPTX)(FatbinHandle, const char*, size_t, const char*, const char*,
                       const char*) = nullptr;
  FatbinCode (*Size)(FatbinHandle, size_t*) = nullptr;
  FatbinCode (*Get)(FatbinHandle, void*) = nullptr;

  Status Check(FatbinCode code, std::string_view doing) const {
    if (code == 0) return Status();
    return Internal(fmt::format("nvFatbin, {}: {}", doing, GetErrorString(code)));
  }
};

Result<Functions> Open(const std::string& library_path) {
  void* library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(fmt::format(
        "opening nvFatbin, which portable variants need: {}; pip install nvidia-nvfatbin, or leave "
        "\"portable\" out of --target",
        dlerror()));
  }
  Functions functions;
  const char* missing = nullptr;
#define KB_FATBIN_SYMBOL(name)                                                                   \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(library, "nvFatbin" #name)); \
  if (functions.name == nullptr) missing = "nvFatbin" #name
  KB_FATBIN_SYMBOL(GetErrorString);
  KB_FATBIN_SYMBOL(Create);
  KB_FATBIN_SYMBOL(Destroy);
  KB_FATBIN_SYMBOL(AddPTX);
  KB_FATBIN_SYMBOL(Size);
  KB_FATBIN_SYMBOL(Get);
#undef KB_FATBIN_SYMBOL
  if (missing == nullptr) return functions;
  return Unavailable(
      fmt::format("{} has no function {}; CUDA 13.0 or later is needed", library_path, missing));
}

Status CheckPtx(std::string_view ptx, const std::string& arch) {
  if (ptx.empty() || ptx.back() != '\0' || std::strlen(ptx.data()) + 1 != ptx.size()) {
    return Internal("portable code is not one NUL-terminated text");
  }
  if (ptx.find(".version ") == std::string_view::npos) {
    return Internal("portable code is not PTX: it has no .version line");
  }
  const size_t target = ptx.find(".target sm_" + arch);
  if (target == std::string_view::npos ||
      std::strchr("\n, ", ptx[target + 11 + arch.size()]) == nullptr) {
    return Internal(fmt::format("portable code is not PTX for sm_{}", arch));
  }
  return Status();
}

}  // namespace

Result<std::string> FatbinOfPtx(const std::string& library_path, std::string_view ptx,
                                const std::string& arch) {
  KB_RETURN_IF_ERROR(CheckPtx(ptx, arch));
  KB_ASSIGN_OR_RETURN(const Functions nvfatbin, Open(library_path));
  // Compression is the bundle's business, which knows siblings.
  std::array<const char*, 2> options = {"-64", "-compress=false"};
  FatbinHandle handle = nullptr;
  KB_RETURN_IF_ERROR(
      nvfatbin.Check(nvfatbin.Create(&handle, options.data(), options.size()), "creating"));
  std::string bytes;
  const Status status = [&]() -> Status {
    KB_RETURN_IF_ERROR(nvfatbin.Check(
        nvfatbin.AddPTX(handle, ptx.data(), ptx.size(), arch.c_str(), "kb.ptx", nullptr), "PTX"));
    size_t size = 0;
    KB_RETURN_IF_ERROR(nvfatbin.Check(nvfatbin.Size(handle, &size), "size"));
    bytes.resize(size);
    return nvfatbin.Check(nvfatbin.Get(handle, bytes.data()), "writing");
  }();
  nvfatbin.Destroy(&handle);
  KB_RETURN_IF_ERROR(status);
  return bytes;
}

}  // namespace kbundle::builder
