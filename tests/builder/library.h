// A small family on disk for the builder's tests: one op "tiny.scale", y = factor * x, for GPU and
// CPU.
#ifndef KBUNDLE_TESTS_BUILDER_LIBRARY_H_
#define KBUNDLE_TESTS_BUILDER_LIBRARY_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "builder/pipeline/build.h"
#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "support/files.h"

namespace kbundle::builder {

using Folder = ::kbundle::testing::TempDir;

inline void WriteText(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}
inline std::string ReadText(const std::string& path) { return ::kbundle::testing::ReadFile(path); }

// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* before = getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (had_)
      setenv(name_, before_.c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string before_;
};

class RecordingReporter : public Reporter {
 public:
  void Progress(int, int, const std::string& what) override { progress.push_back(what); }
  void Note(const std::string& line) override { notes.push_back(line); }
  void Warn(const std::string& text) override { notes.push_back("warning: " + text); }
  void Failure(const std::string& text) override { failures.push_back(text); }
  std::vector<std::string> progress, notes, failures;
};

inline constexpr char kManifest[] = R"toml([family]
name = "tiny"
reference = "reference.py"

[op.scale]
summary = "y = factor * x"
types = { T = ["f32", "bf16"] }
operands = { x = "T[N]" }
results = { y = "T[N]" }
attributes = { factor = { type = "float", default = 2.0 } }

[[op.scale.variant]]
name = "grid"
provider = "cuda"
source = "tiny.cu"
portable = true
tunables = { UNROLL = [1, 2] }
steps = [{ kernel = "Scale<{T}, {UNROLL}>", grid = ["ceil_div(N, 256 * UNROLL)"], block = ["256"],
           args = ["y", "x", "f32(factor)", "i64(N)"] }]

[[op.scale.variant]]
name = "loop"
provider = "host"
source = "tiny_host.cc"
types = { T = ["f32"] }
steps = [{ kernel = "scale_{T}", range = "N", grain = "4096", args = ["y", "x", "f32(factor)"] }]
)toml";

inline constexpr char kCudaSource[] = R"(#include "tiny.cuh"
namespace { __device__ float touched; }  // its name must not depend on where and when
template <typename T, int UNROLL>
__global__ void Scale(T* y, const T* x, float factor, long long n) {
  touched = factor;
  for (int u = 0; u < UNROLL; ++u) {
    const long long i = (blockIdx.x * (long long)UNROLL + u) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = Times(x[i], factor);
  }
}
)";
inline constexpr char kCudaHeader[] = R"(#pragma once
#include <cuda_bf16.h>
template <typename T> __device__ T Times(T x, float factor) { return T(float(x) * factor); }
)";
inline constexpr char kHostSource[] = R"(#include "kbundle/host_kernel.h"
#include "part.h"
static void Scale(int64_t begin, int64_t end, float* y, const float* x, float factor) {
  for (int64_t i = begin; i < end; ++i) y[i] = Times(x[i], factor);
}
KB_HOST_KERNEL(scale_f32, Scale);
)";
inline constexpr char kHostHeader[] =
    "#pragma once\n"
    "static inline float Times(float x, float factor) { return x * factor; }\n";

inline void WriteLibrary(const std::string& folder) {
  WriteText(folder + "/tiny.toml", kManifest);
  WriteText(folder + "/tiny.cu", kCudaSource);
  WriteText(folder + "/tiny.cuh", kCudaHeader);
  WriteText(folder + "/tiny_host.cc", kHostSource);
  WriteText(folder + "/part.h", kHostHeader);
  WriteText(folder + "/reference.py", "def scale(x, *, factor=2.0):\n    return x * factor\n");
}

inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_BUILDER_LIBRARY_H_
