// The wheels nvidia-cudnn-cu13 and nvidia/cu13 are neighbours, so beside a wheel of CUDA is one of
// cuDNN.
#include "builder/provider/cudnn/find.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "builder/tools/gpu_libraries.h"

namespace kbundle::builder {
namespace {

constexpr char kCudnnSoname[] = "libcudnn.so.9";

}  // namespace

std::vector<std::string> CudnnPaths(const Toolchain& tools) {
  std::vector<std::string> paths;
  const char* set = getenv("KBUNDLE_CUDNN");
  std::istringstream words(set != nullptr ? set : "");
  for (std::string library; std::getline(words, library, ':');) {
    if (!library.empty()) paths.push_back(library);
  }
  if (!paths.empty()) return paths;
  std::vector<std::string> roots = tools.roots;
  roots.push_back("/usr");
  return {FirstFile(roots, {"../cudnn/lib", "lib", "lib64", "lib/x86_64-linux-gnu"}, kCudnnSoname)};
}

Status NeedCudnn(const Toolchain& tools, const std::string& library) {
  std::error_code error;
  if (!library.empty() && std::filesystem::exists(library, error)) return Status();
  return Unavailable(fmt::format(
      "cuDNN's plans need {}, {}; run scripts/setup or pip install "
      "nvidia-cudnn-cu13==9.19.0.56, or name the library in KBUNDLE_CUDNN",
      kCudnnSoname,
      library.empty() ? fmt::format("looked for in: {}, /usr", fmt::join(tools.searched, ", "))
                      : "which is not at " + library));
}

void LoadCudnn(const Toolchain& tools) {
  const std::string library = CudnnPaths(tools).front();
  LoadCublasLt(tools.nvrtc, library);
  if (!library.empty()) (void)HasLibrary(kCudnnSoname, {library});
}

}  // namespace kbundle::builder
