#include <algorithm>
#include <filesystem>
#include <set>

#include "fmt/format.h"
#include "manifest.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

void CollectFrom(const fs::path& folder, bool deeper, std::set<std::string>& out) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".toml" && it->is_regular_file(ignored)) {
      out.insert(it->path().string());
    } else if (deeper && it->is_directory(ignored)) {
      CollectFrom(it->path(), false, out);
    }
  }
}

}  // namespace

Result<std::vector<std::string>> FindManifests(const std::vector<std::string>& paths) {
  std::set<std::string> found;
  for (const std::string& path : paths) {
    std::error_code error;
    size_t before = found.size();
    if (fs::is_directory(path, error)) {
      CollectFrom(path, true, found);
    } else if (fs::is_regular_file(path, error)) {
      found.insert(path);
      continue;
    } else {
      return NotFound(
          fmt::format("looking for manifests: '{}' does not exist; give a *.toml file or "
                      "a folder of op families",
                      path));
    }
    if (found.size() == before) {
      return NotFound(
          fmt::format("looking for manifests: no *.toml in '{}' or in a folder of it; "
                      "each op family has one",
                      path));
    }
  }
  if (found.empty()) return NotFound("looking for manifests: no path was given; name a folder");
  return std::vector<std::string>(found.begin(), found.end());
}

std::string SubstituteKernel(const Op& op, const Template& variant, const Template::Point& point,
                             const std::string& kernel) {
  // nvcc kernels are extern "C": a C++ type cannot be a part of their names.
  const bool nvrtc = variant.provider == Provider::kCuda || variant.provider == Provider::kCudnn ||
                     variant.provider == Provider::kCublasLt;
  bool cpp_names = nvrtc && variant.compiler != "nvcc";
  std::string out;
  for (size_t i = 0; i < kernel.size();) {
    size_t close = kernel[i] == '{' ? kernel.find('}', i) : std::string::npos;
    if (close == std::string::npos) {
      out += kernel[i++];
      continue;
    }
    std::string_view name(kernel.data() + i + 1, close - i - 1);
    for (size_t t = 0; t < op.types.size(); ++t) {
      if (op.types[t].name == name)
        out += cpp_names ? CudaTypeName(point.types[t]) : Name(point.types[t]);
    }
    for (size_t t = 0; t < variant.tunables.size(); ++t) {
      if (variant.tunables[t] == name) out += std::to_string(point.tunables[t]);
    }
    i = close + 1;
  }
  return out;
}

}  // namespace kbundle::builder
