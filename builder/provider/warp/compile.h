// One kernel of Warp to a cubin, or to a shared object for the CPU.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_COMPILE_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_COMPILE_H_

#include <memory>

#include "builder/compile/compile.h"
#include "builder/compile/python_worker.h"

namespace kbundle::builder {

Result<Object> CompileWithWarp(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                               const CompileContext& context, PythonWorkers* workers);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_COMPILE_H_
