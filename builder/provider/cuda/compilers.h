// NVRTC and nvcc as compilers of a build.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_COMPILERS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_COMPILERS_H_

#include <memory>

#include "builder/compile/compile.h"

namespace kbundle::builder {

std::unique_ptr<Compiler> MakeNvrtcCompiler();
std::unique_ptr<Compiler> MakeNvccCompiler();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_COMPILERS_H_
