// A measurer without a device, for tests of the tuner: every answer is a function of seed, problem,
// candidate and round, so that a tune that was killed can be compared with one that was not.
#ifndef KBUNDLE_BUILDER_TUNE_REPLAY_H_
#define KBUNDLE_BUILDER_TUNE_REPLAY_H_

#include <memory>
#include <string>
#include <vector>

#include "builder/tune/measurer.h"

namespace kbundle::builder {

// `problems` outlive it. About one candidate in ten fails its check.
std::unique_ptr<Measurer> MakeReplayMeasurer(const std::string& seed,
                                             const std::vector<const SpaceProblem*>& problems);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_REPLAY_H_
