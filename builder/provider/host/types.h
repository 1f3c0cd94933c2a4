// The parameter types of a host source's kernels. The code object holds sizes alone, and its bytes
// may not change for a check: the compiler's front end is asked a second time, with a
// KB_HOST_KERNEL that writes down types instead of making kernels.
#ifndef KBUNDLE_BUILDER_PROVIDER_HOST_TYPES_H_
#define KBUNDLE_BUILDER_PROVIDER_HOST_TYPES_H_

#include "builder/compile/compile.h"

namespace kbundle::builder {

// The unit's source compiles. A kernel made without KB_HOST_KERNEL is not among them.
Result<ParameterTypes> ReadHostTypes(const Unit& unit, const SourceTree& tree,
                                     const CompileContext& context);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_HOST_TYPES_H_
