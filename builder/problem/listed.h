// The problems that a bundle lists for an op (the manifest's `problems`), as requests again.
#ifndef KBUNDLE_BUILDER_PROBLEM_LISTED_H_
#define KBUNDLE_BUILDER_PROBLEM_LISTED_H_

#include <vector>

#include "kbundle/bundle.h"

namespace kbundle::builder {

// Both in the bundle's order.
std::vector<ProblemSpec> ListedSpecs(const Bundle& bundle, uint32_t op);
// An error means that the bundle lists what its own interface refuses.
Result<std::vector<Problem>> ListedProblems(const Bundle& bundle, uint32_t op);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_LISTED_H_
