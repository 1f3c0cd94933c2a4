// One Triton kernel to a cubin, by a Python child.
#ifndef KBUNDLE_BUILDER_PROVIDER_TRITON_COMPILE_H_
#define KBUNDLE_BUILDER_PROVIDER_TRITON_COMPILE_H_

#include <chrono>
#include <memory>

#include "builder/compile/python_worker.h"
#include "builder/compile/work.h"
#include "builder/store/object.h"

namespace kbundle::builder {

Result<Object> CompileWithTriton(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                                 std::chrono::seconds limit, PythonWorkers* workers);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_TRITON_COMPILE_H_
