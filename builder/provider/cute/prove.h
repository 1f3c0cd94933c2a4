// The proof of what was found: recorded and computed bytes of problems that nothing was inferred
// from.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_PROVE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_PROVE_H_

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "builder/provider/cute/problems.h"

namespace kbundle::builder {

struct Refuted {
  std::vector<int> by;  // numbers of problems, ascending; none: the steps are proved
  // kInvalidArgument names kernel, parameter and offset of the first, with both numbers.
  Status first;
};

// Of `problems` those with these numbers. recorded: by number and launch, bytes that are never
// written as zero. kInternal: it is not theirs.
Result<Refuted> ProveLaunches(const std::vector<Step>& steps, const CuteSubject& subject,
                              const Step& step, std::span<const CuteProblem> problems,
                              std::span<const int> numbers, const nlohmann::json& recorded);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_PROVE_H_
