// The Python that has Triton.
#ifndef KBUNDLE_BUILDER_PROVIDER_TRITON_PYTHON_H_
#define KBUNDLE_BUILDER_PROVIDER_TRITON_PYTHON_H_

#include "builder/tools/python_package.h"

namespace kbundle::builder {

extern const char kTritonScript[];

// The version that kbundle was tried with, and the child that compiles.
inline PythonPackage TritonPackage() { return {"triton", "triton", "3.6.0", kTritonScript}; }

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_TRITON_PYTHON_H_
