// The arguments of a step of Warp, and the arrays of their gradients.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_ARGUMENTS_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_ARGUMENTS_H_

#include <optional>

#include "builder/manifest/tables.h"
#include "builder/provider/warp/kernel.h"

namespace kbundle::builder {

// One of `args`: "x", "vec3(x)", "f32[5](x)", "f32(dt)", "vec3(gravity)". What cannot be known
// before there is a problem becomes a condition of the variant. Nothing after an error.
std::optional<WarpKernel::Parameter> ReadWarpArgument(StepTable& table, const Node& node);
// The one of `adjoints` that stands beside it.
void ReadWarpGradient(StepTable& table, const Node& node, WarpKernel::Parameter* parameter);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_ARGUMENTS_H_
