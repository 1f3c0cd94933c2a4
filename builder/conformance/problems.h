// Which problems a test of a family launches each of its variants on.
#ifndef KBUNDLE_BUILDER_CONFORMANCE_PROBLEMS_H_
#define KBUNDLE_BUILDER_CONFORMANCE_PROBLEMS_H_

#include <string>
#include <vector>

#include "builder/tune/space.h"

namespace kbundle::builder {

struct ConformanceChoice {
  std::string problem;            // one, as JSON, instead of all others; "" none
  std::vector<std::string> only;  // variants; empty: all
};

// Each variant is on several of these: of the listed problems that it is legal for, and of smaller,
// odd and edge-sized ones made from them (problem/derived.h), the smallest, the largest and some
// between. SpaceProblem::candidates has the variants that were chosen for the problem, not all that
// are legal. kInvalidArgument: no such problem; kNotFound: no op or variant of that name.
Result<std::vector<SpaceProblem>> ProblemsToTest(const TuneSpace& space,
                                                 const ConformanceChoice& choice);

// Why a variant is on none of them, and what problem would be: for the person who lists problems.
std::string WhyUnreached(const TuneSpace& space, uint32_t use);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CONFORMANCE_PROBLEMS_H_
