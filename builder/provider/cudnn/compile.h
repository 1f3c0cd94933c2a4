// One request to an execution plan.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_COMPILE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_COMPILE_H_

#include <chrono>

#include "builder/compile/work.h"
#include "builder/provider/cudnn/libraries.h"
#include "builder/store/object.h"
#include "builder/tools/finding.h"

namespace kbundle::builder {

// An object without code where cuDNN does not take the request: its log says why.
Result<Object> CompileWithCudnn(const Unit& unit, const CudnnLibraries& libraries,
                                std::chrono::seconds limit);

// provider/cudnn/look.cc
Finding LookForCudnn(const Toolchain& tools);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_COMPILE_H_
