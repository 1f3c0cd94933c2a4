// Which compilers there are, and their identity.
//
// Searched in order, each part on its own (a wheel installation may hold just one of them):
// $KBUNDLE_CUDA_ROOT alone, if set; else the nvidia/cu13 folder of the Python environments of
// tools/python_environments.h (the working folder does not matter) and of the prefix that this
// command is installed in, /usr/local/cuda, nvcc in PATH. nvFatbin, which older toolkits lack, is
// always looked for in all of them. Host compiler: $KBUNDLE_CXX, else c++, else g++; for Arm
// $KBUNDLE_CXX_ARM, else aarch64-linux-gnu-g++. What only one
// provider needs it looks for itself, in `roots`.
#ifndef KBUNDLE_BUILDER_TOOLS_TOOLCHAIN_H_
#define KBUNDLE_BUILDER_TOOLS_TOOLCHAIN_H_

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kbundle/sha256.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle::builder {

struct Toolchain {
  std::string nvrtc, nvrtc_builtins, nvfatbin;  // libraries; "" where not found
  std::string ptxas;  // of NVRTC's own installation, whose PTX another may not know
  std::string nvcc;
  std::vector<std::string> nvcc_parts;     // binaries that decide what nvcc makes
  std::vector<std::string> cuda_includes;  // the toolkit's include folder and its CCCL
  std::string host_compiler;
  std::vector<std::string> host_parts;
  std::string arm_compiler;  // for armv8-a, on x86-64 a cross compiler
  std::vector<std::string> arm_parts;
  std::string kernel_includes;        // folder that holds kbundle/host_kernel.h
  std::vector<std::string> roots;     // every installation of CUDA that there may be
  std::vector<std::string> searched;  // folders, for messages

  // Never fails: what is missing is an error only for who needs it.
  static Toolchain Find();
  // Asks the host compilers for their parts; takes some milliseconds.
  void FindHostParts();
  const std::string& HostCompiler(const Target& target) const {
    return target.IsArm() ? arm_compiler : host_compiler;
  }

  Status NeedNvrtc() const;
  Status NeedNvcc() const;
  Status NeedNvfatbin() const;
  Status NeedHostCompiler() const;
  Status NeedArmCompiler() const;
  Status NeedKernelIncludes() const;
};

// First <root>/<folder>/<name> that exists, or "".
std::string FirstFile(const std::vector<std::string>& roots,
                      std::initializer_list<const char*> folders, const std::string& name);

// SHA-256 of a few large binaries, remembered in `cache_folder` by path, size and time of last
// change, since hashing NVRTC takes a third of a second. Thread-compatible.
class ToolDigests {
 public:
  explicit ToolDigests(std::string cache_folder) : cache_folder_(std::move(cache_folder)) {}
  Result<Sha256Digest> Of(const std::string& path);
  // One digest over several files, in order.
  Result<Sha256Digest> Of(const std::vector<std::string>& paths);

 private:
  std::string cache_folder_;
  std::map<std::string, Sha256Digest> known_;
};

// First line of `program --version` that holds a digit-dot-digit; "" when it cannot be asked.
std::string ToolVersion(const std::string& program);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_TOOLCHAIN_H_
