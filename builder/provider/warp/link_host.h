// A relocatable object of Warp's compiler as the shared object that the loader maps.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_LINK_HOST_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_LINK_HOST_H_

#include <string>

#include "builder/compile/compile.h"

namespace kbundle::builder {

// It exports `symbol` and its parameter sizes alone, and asks for nothing but the C library's
// mathematics and memory functions. kInvalidArgument: it wants a function of Warp's own library.
Result<std::string> LinkForHost(const std::string& object, const std::string& symbol,
                                const Target& target, const CompileContext& context);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_LINK_HOST_H_
