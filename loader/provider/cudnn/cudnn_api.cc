// libcudnn is found, never linked: the process's own wins, since its parts must be of one release.
#include "loader/provider/cudnn/cudnn_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <memory>
#include <utility>

#include "kbundle/provider/cudnn.h"
#include "loader/support/once_map.h"

namespace kbundle {
namespace {

constexpr char kSoname[] = "libcudnn.so.9";

// CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED and .._DEVICE_ALLOCATION_FAILED.
constexpr int kHostAllocationFailed = 4003, kDeviceAllocationFailed = 4004;
// CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH and .._SUBLIBRARY_LOADING_FAILED.
constexpr int kPartOfOtherVersion = 1002, kPartNotLoaded = 1008;

// Paths of all that the process has loaded, the library itself first.
std::string LoadedParts(std::string paths) {
  const auto add = [](dl_phdr_info* info, size_t, void* out) {
    const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    if (path.find("libcudnn") == std::string_view::npos) return 0;
    auto& all = *static_cast<std::string*>(out);
    if (all.find(path) == std::string::npos) all += ", " + std::string(path);
    return 0;
  };
  dl_iterate_phdr(add, &paths);
  return paths;
}

Result<void*> OpenLibrary() {
  void* library = dlopen(kSoname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* why = dlerror();
  return Unavailable(fmt::format(
      "looking for cuDNN: this process has none, and the dynamic linker finds none ({}); install "
      "nvidia-cudnn-cu13 beside the framework, or name its folder in LD_LIBRARY_PATH",
      why != nullptr ? why : kSoname));
}

std::string PathOf(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return kSoname;
  return map->l_name;
}

Status Fill(void* library, CudnnApi& api) {
  api.path = PathOf(library);
#define KB_CUDNN_LOAD(member, symbol, signature)                                          \
  api.member = reinterpret_cast<CudnnApi::member##Function>(dlsym(library, #symbol));     \
  if (api.member == nullptr) {                                                            \
    return FailedPrecondition(fmt::format(                                                \
        "{} lacks {}: kbundle needs cuDNN 9.8 or later; install it", api.path, #symbol)); \
  }
  KB_CUDNN_SYMBOLS(KB_CUDNN_LOAD)
#undef KB_CUDNN_LOAD
  return Status();
}

}  // namespace

Result<const CudnnApi*> CudnnApi::Get() {
  static OnceMap<int, const CudnnApi>& found = *new OnceMap<int, const CudnnApi>;
  const auto find = []() -> Result<std::shared_ptr<const CudnnApi>> {
    KB_ASSIGN_OR_RETURN(void* library, OpenLibrary());
    auto api = std::make_shared<CudnnApi>();
    KB_RETURN_IF_ERROR(Fill(library, *api));
    return std::shared_ptr<const CudnnApi>(std::move(api));
  };
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<const CudnnApi> api, found.GetOrMake(0, find));
  return api.get();
}

Status CudnnApi::Check(int status, const std::string& doing) const {
  if (status == 0) return Status();
  char words[512] = "";
  GetLastErrorString(words, sizeof words);
  const bool memory = status == kHostAllocationFailed || status == kDeviceAllocationFailed;
  std::string text = fmt::format("{}: cuDNN {} answers {}: {}", doing,
                                 CudnnVersionText(GetVersion()), status, words);
  if (status == kPartOfOtherVersion || status == kPartNotLoaded) {
    text += fmt::format(
        "; its parts must be of one release, and loaded are {}: have all of them in one folder, "
        "and that folder first in LD_LIBRARY_PATH",
        LoadedParts(path));
  }
  return Status(memory ? StatusCode::kResourceExhausted : StatusCode::kFailedPrecondition, text);
}

}  // namespace kbundle
