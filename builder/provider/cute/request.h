// What the child is asked for: one function on one target, as JSON. The text is all that its answer
// depends on besides the source and what is installed, so it is also part of the key; the problems
// that are recorded follow from it.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_REQUEST_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_REQUEST_H_

#include <string>
#include <vector>

#include "builder/compile/work.h"

namespace kbundle::builder {

bool CuteMakes(const Target& target);

Result<std::string> CuteRequest(const Op& op, const Template& variant, const Template::Point& point,
                                const Step& step, const Target& target);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_REQUEST_H_
