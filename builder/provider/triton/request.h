// What Triton is asked for: one kernel of one variant on one target, as JSON. The text is all that
// Triton's result depends on besides the source and Triton itself, so it is also part of the key.
#ifndef KBUNDLE_BUILDER_PROVIDER_TRITON_REQUEST_H_
#define KBUNDLE_BUILDER_PROVIDER_TRITON_REQUEST_H_

#include <string>

#include "builder/model/family.h"
#include "kbundle/target.h"

namespace kbundle::builder {

// Triton makes code for one GPU: plain below 9.0, and what follows from 9.0 on with the suffix "a".
// It never makes the code of an SM family.
bool TritonMakes(const Target& target);
// "sm_100a" for sm_100f; "" where Triton makes nothing like it (hosts, portable).
std::string TritonWouldMake(const Target& target);

// kOutOfRange: an expression fails at this point of the grid.
Result<std::string> TritonRequest(const Op& op, const Template& variant,
                                  const Template::Point& point, const Step& step,
                                  const Target& target);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_TRITON_REQUEST_H_
