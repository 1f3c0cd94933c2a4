// Functions of cuBLASLt that only the builder needs, and the loader's table therefore lacks.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_FUNCTION_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_FUNCTION_H_

#include <dlfcn.h>
#include <fmt/format.h>

#include "kbundle/cublaslt_api.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// kFailedPrecondition: this library is without it. The caller knows the function's type.
template <typename Function>
Status FindFunction(const CublasLtApi& lt, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(lt.library, name));
  return *function != nullptr ? Status()
                              : FailedPrecondition(fmt::format("cuBLASLt lacks {}", name));
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_FUNCTION_H_
