// NVRTC and nvcc as compilers of a build.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_COMPILERS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_COMPILERS_H_

#include <memory>
#include <vector>

#include "builder/compile/compile.h"
#include "builder/tools/finding.h"

namespace kbundle::builder {

std::unique_ptr<Compiler> MakeNvrtcCompiler();
std::unique_ptr<Compiler> MakeNvccCompiler();

// provider/cuda/looks.cc: NVRTC, ptxas, nvFatbin, nvcc.
void AddCudaLooks(std::vector<Look>* looks);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_COMPILERS_H_
