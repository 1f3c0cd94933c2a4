// What Warp is asked for: one kernel of one variant on one target, as JSON. The text is all that
// Warp's result depends on besides the source and Warp itself, so it is also part of the key.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_REQUEST_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_REQUEST_H_

#include <string>

#include "builder/model/family.h"
#include "kbundle/target.h"

namespace kbundle::builder {

// kernel: the Python function's name. kOutOfRange: an expression fails at this point of the grid.
Result<std::string> WarpRequest(const Template::Point& point, const Step& step,
                                const std::string& kernel, const Target& target);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_REQUEST_H_
