// Where the libraries of cuDNN are: $KBUNDLE_CUDNN (one, or several joined by ":"), else beside
// CUDA's wheels, in its toolkits, where distributions put it.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_FIND_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_FIND_H_

#include <string>
#include <vector>

#include "builder/tools/toolchain.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Each a libcudnn.so.9, of other versions perhaps; the first is the one for all that asks for no
// version. Never empty: "" where none was found.
std::vector<std::string> CudnnPaths(const Toolchain& tools);

// Whether it is there. kUnavailable says where it was looked for and how to get it.
Status NeedCudnn(const Toolchain& tools, const std::string& library);

// Takes the first, and cuBLASLt, which it asks for by name, into this process.
void LoadCudnn(const Toolchain& tools);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_FIND_H_
