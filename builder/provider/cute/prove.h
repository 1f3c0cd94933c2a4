// The proof of what was found: recorded and computed bytes of problems that nothing was inferred
// from.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_PROVE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_PROVE_H_

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "builder/provider/cute/problems.h"

namespace kbundle::builder {

// recorded: by problem and launch, bytes that are never written as zero. kInvalidArgument names
// kernel, parameter, offset and problem, with both numbers.
Status ProveLaunches(const std::vector<Step>& steps, const CuteSubject& subject, const Step& step,
                     std::span<const CuteProblem> problems, const nlohmann::json& recorded);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_PROVE_H_
