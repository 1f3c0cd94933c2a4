// Tunables that decide nothing: each of their values would compile the same code again.
#ifndef KBUNDLE_BUILDER_MANIFEST_UNUSED_H_
#define KBUNDLE_BUILDER_MANIFEST_UNUSED_H_

#include <string>

#include "builder/manifest/tree.h"

namespace kbundle::builder {

// node: a variant's table. source: the text of its sources where tunables reach them as macros
// (nvcc), else "". An error at each tunable of several values that no kernel's name, expression or
// macro uses; `keep`, which only prunes, does not count.
void RefuseUnusedTunables(const Node& node, const std::string& source, Diagnostics& diagnostics);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_UNUSED_H_
