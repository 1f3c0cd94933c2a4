// The tools that a piece of work needs, found before anything is compiled.
#ifndef KBUNDLE_BUILDER_PIPELINE_FIND_TOOLS_H_
#define KBUNDLE_BUILDER_PIPELINE_FIND_TOOLS_H_

#include <string>

#include "builder/compile/compile.h"
#include "builder/compile/work.h"

namespace kbundle::builder {

// Fills context->tools, ->nvrtc and ->triton with what the units of `work` are compiled with.
// python: where Triton is, as FindTritonPython takes it. kUnavailable names what is missing and how
// to install it; what no unit needs may be missing.
Status FindToolsFor(const Work& work, const std::string& python, CompileContext* context);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_FIND_TOOLS_H_
