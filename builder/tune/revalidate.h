// `kbundle tune --revalidate`: records whose winner or default has other code by now, as after a
// compiler's patch release, without measuring every candidate again.
//
// Winner and default alone are measured. Where the winner still wins, the record holds for today's
// code; what the others took is kept as it was, marked `earlier`. Where it does not, nobody knows
// who does: the record stays as it is, and only a full tune answers.
#ifndef KBUNDLE_BUILDER_TUNE_REVALIDATE_H_
#define KBUNDLE_BUILDER_TUNE_REVALIDATE_H_

#include <optional>
#include <string>
#include <vector>

#include "builder/record/record.h"
#include "builder/tune/space.h"

namespace kbundle::builder {

struct StaleProblem {
  SpaceProblem problem;  // with winner and default as its candidates
  TuningRecord record;
};

// Of the space's target and op. Compiles what the records name. Those whose winner or default is
// gone are not among them: *warnings says so.
Result<std::vector<StaleProblem>> FindStale(TuneSpace* space, const std::string& op,
                                            std::vector<std::string>* warnings);

// The record for today's code, from what was measured of winner and default; nothing where the
// winner does not win any more.
std::optional<TuningRecord> Revalidated(const TuningRecord& before, const TuningRecord& measured);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_REVALIDATE_H_
