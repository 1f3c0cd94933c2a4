// Libraries of NVIDIA's that launches call, for a process in which no framework has loaded them:
// they are found where the compilers are, wheels among them, so that no variable need name a
// folder. cuBLASLt stands here, since cuDNN asks for it too.
#ifndef KBUNDLE_BUILDER_TOOLS_GPU_LIBRARIES_H_
#define KBUNDLE_BUILDER_TOOLS_GPU_LIBRARIES_H_

#include <string>
#include <vector>

namespace kbundle::builder {

inline constexpr char kCublasLtSoname[] = "libcublasLt.so.13";

// Where cuBLASLt may be: beside NVRTC, so that both are of one release, or beside cuDNN, whose
// wheel has the other wheels for neighbours. nvrtc, cudnn: those libraries' paths; "" where not
// found.
std::vector<std::string> CublasLtFolders(const std::string& nvrtc, const std::string& cudnn);

// Whether the process has a library of this name now: its own, the dynamic linker's, or the first
// of `paths` that can be loaded. It stays loaded.
bool HasLibrary(const char* soname, const std::vector<std::string>& paths);

// Takes cuBLASLt of these folders into this process.
void LoadCublasLt(const std::string& nvrtc, const std::string& cudnn);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TOOLS_GPU_LIBRARIES_H_
