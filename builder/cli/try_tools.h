// Each tool used once on something tiny, as a build uses it: that a library is there does not say
// that it finds the others it loads, nor that it runs on this machine.
#ifndef KBUNDLE_BUILDER_CLI_TRY_TOOLS_H_
#define KBUNDLE_BUILDER_CLI_TRY_TOOLS_H_

#include <string>

#include "builder/tools/toolchain.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Each has been found (Toolchain::Need..). An error says what was tried and what the tool said.
// Safe from any thread; a second or two each, never more than a minute.
Status TryNvrtc(const Toolchain& tools);         // a kernel with bf16 for sm_90a
Status TryPtxas(const Toolchain& tools);         // PTX of NVRTC to a cubin
Status TryNvfatbin(const Toolchain& tools);      // PTX of NVRTC into a fatbin
Status TryNvcc(const Toolchain& tools);          // a kernel to a cubin, with the host compiler
Status TryHostCompiler(const Toolchain& tools);  // a host kernel to a shared object
Status TryTriton(const std::string& python);     // import
Status TryWarp(const std::string& python);       // import, with its compilers

// The version, after the planner has planned attention for an H200: loads cuDNN, its parts, NVRTC
// and cuBLASLt in the planner's process.
Result<std::string> TryCudnn(const Toolchain& tools);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_TRY_TOOLS_H_
