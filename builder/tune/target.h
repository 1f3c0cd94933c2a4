// Can this machine run a target's code?
#ifndef KBUNDLE_BUILDER_TUNE_TARGET_H_
#define KBUNDLE_BUILDER_TUNE_TARGET_H_

#include <nlohmann/json.hpp>
#include <string>

#include "kbundle/target.h"

namespace kbundle::builder {

// kFailedPrecondition: this CPU, or the GPU of a measuring child with these facts (and, in the
// error, this number), cannot.
Status CheckCpu(const Target& target);
Status CheckGpu(const Target& target, const nlohmann::json& facts, int number = 0);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_TARGET_H_
