// What to measure next: a pure function of everything measured so far. A resumed tune therefore
// goes on exactly where it ended, and two tunes that saw the same samples did the same.
#ifndef KBUNDLE_BUILDER_RECORD_SCHEDULE_H_
#define KBUNDLE_BUILDER_RECORD_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "builder/record/log.h"

namespace kbundle::builder {

struct TuningStep {
  enum class Kind : uint8_t {
    kCheck,  // compare `candidate`'s numbers with the reference; then log checked or failed
    kTime,   // take kSamplesPerRound samples of it in `round`; then log them, or failed
    kDone,   // nothing is left to do for this problem
  };
  Kind kind = Kind::kDone;
  int candidate = -1;  // in ProblemLog::candidates
  int round = -1;
};

TuningStep NextStep(const ProblemLog& log);

// The candidates that are going to be measured at all, in manifest order: known before anything is
// measured or compiled. All of them where they are at most kMaxCandidates.
std::vector<int> MeasuredCandidates(size_t count, uint64_t seed);

// Which of the measured candidates were left out of later rounds, in manifest order.
std::vector<int> DroppedCandidates(const ProblemLog& log);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_RECORD_SCHEDULE_H_
