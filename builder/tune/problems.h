// Which problems a tune is about, and in which order.
#ifndef KBUNDLE_BUILDER_TUNE_PROBLEMS_H_
#define KBUNDLE_BUILDER_TUNE_PROBLEMS_H_

#include <string>
#include <vector>

#include "builder/tune/tune.h"

namespace kbundle::builder {

// What the options name, else what the manifests list, as they stand.
Result<std::vector<SpaceProblem>> AllProblems(const TuneOptions& options, const TuneSpace& space,
                                              std::vector<std::string>* warnings);

// What the options name, else what the manifests list: each once, with the candidates that are
// asked for; none without a candidate, an element or a reference. With a budget an early end has
// had something of every op. Adds to *warnings what the user should know. kInvalidArgument: no such
// op or problem.
Result<std::vector<SpaceProblem>> ProblemsToTune(const TuneOptions& options, const TuneSpace& space,
                                                 std::vector<std::string>* warnings);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_PROBLEMS_H_
