// What builder/provider/cudnn/planner is asked for: the graph of a step for one point of its
// variant.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_REQUEST_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_REQUEST_H_

#include <string>

#include "builder/model/family.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle::builder {

// {"cudnn": 91900, "profile": {..}, "request": {..}} as JSON: all that decides the execution plan
// but the programs that make it; "refused" with a reason instead of the request where the problem's
// score modifier is nothing for cuDNN. kOutOfRange: an expression has no value for the point's
// problem.
Result<std::string> GraphRequest(const Op& op, const Template& variant,
                                 const Template::Point& point, const Step& step,
                                 const Target& target);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_REQUEST_H_
