// One step of CuTe DSL to a cubin and its launches, by a Python child.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_COMPILE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_COMPILE_H_

#include <memory>
#include <string>

#include "builder/compile/compile.h"
#include "builder/compile/python_worker.h"
#include "builder/compile/work.h"
#include "builder/provider/cute/draws.h"
#include "builder/source/tree.h"
#include "builder/store/object.h"

namespace kbundle::builder {

// The host compiler is for what stands in for CUDA's runtime. kept: a folder that is there as long
// as units are compiled (learn.h). Safe from any thread.
// kInvalidArgument: the source or the manifest is wrong, or the launches cannot be learned.
Result<Object> CompileWithCute(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                               const CompileContext& context, PythonWorkers* workers,
                               CuteDraws* draws, const std::string& kept);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_COMPILE_H_
