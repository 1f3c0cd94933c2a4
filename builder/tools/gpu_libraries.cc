// The dynamic linker gives a library that is loaded to whoever asks for its name: loading by full
// path first is what makes the loader's later dlopen("libcudnn.so.9") succeed.
#include "builder/tools/gpu_libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

namespace kbundle::builder {

namespace fs = std::filesystem;

std::vector<std::string> CublasLtFolders(const std::string& nvrtc, const std::string& cudnn) {
  std::vector<std::string> folders;
  if (!nvrtc.empty()) folders.push_back(fs::path(nvrtc).parent_path().string());
  if (!cudnn.empty()) {
    const fs::path folder = fs::path(cudnn).parent_path();
    folders.push_back(folder.string());
    folders.push_back((folder / "../../cu13/lib").lexically_normal().string());
  }
  folders.insert(folders.end(), {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"});
  return folders;
}

bool HasLibrary(const char* soname, const std::vector<std::string>& paths) {
  if (dlopen(soname, RTLD_NOW | RTLD_LOCAL) != nullptr) return true;
  return std::any_of(paths.begin(), paths.end(), [](const std::string& path) {
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
  });
}

void LoadCublasLt(const std::string& nvrtc, const std::string& cudnn) {
  std::vector<std::string> paths;
  for (const std::string& folder : CublasLtFolders(nvrtc, cudnn)) {
    paths.push_back(folder + "/" + kCublasLtSoname);
  }
  (void)HasLibrary(kCublasLtSoname, paths);
}

}  // namespace kbundle::builder
