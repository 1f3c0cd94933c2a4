// The Python that has Warp.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_PYTHON_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_PYTHON_H_

#include "builder/tools/python_package.h"

namespace kbundle::builder {

// The version that kbundle was tried with, and the child that compiles.
PythonPackage WarpPackage();

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_PYTHON_H_
