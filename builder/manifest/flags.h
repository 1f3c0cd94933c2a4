// Compiler flags that a manifest may not give: those that read files which the key of a compilation
// does not see, and those that say what the target says.
#ifndef KBUNDLE_BUILDER_MANIFEST_FLAGS_H_
#define KBUNDLE_BUILDER_MANIFEST_FLAGS_H_

#include <string>
#include <string_view>

#include "builder/manifest/tree.h"

namespace kbundle::builder {

// before: the flag in front of it, or "". compiler: "nvrtc", "nvcc" or "c++".
void CheckFlag(const Node& flag, std::string_view before, const std::string& compiler,
               Diagnostics& diagnostics);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_FLAGS_H_
