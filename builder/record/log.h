// Everything known about one problem's candidates while it is being tuned, a plain value: what the
// schedule and the verdict are computed from, and what replaying a journal gives back.
#ifndef KBUNDLE_BUILDER_RECORD_LOG_H_
#define KBUNDLE_BUILDER_RECORD_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "builder/record/statistics.h"

namespace kbundle::builder {

struct CandidateFailure {
  // "wrong", "outside", "fault", "abort", "hang", "memory", "output", "load", "launch", "compile"
  std::string kind, detail, reproduce;
  bool operator==(const CandidateFailure&) const = default;
};

struct CandidateLog {
  std::string variant;      // its id, with "@target"
  std::string fingerprint;  // of its code; "" until it is compiled
  bool checked = false;     // its numbers are right
  RoundSamples samples;
  std::optional<CandidateFailure> failed;
  int failed_round = -1;  // -1: before the first round
  int64_t workspace = 0;  // bytes, once it is checked
};

struct ProblemLog {
  std::vector<CandidateLog> candidates;  // all that are legal, in manifest order
  uint64_t seed = 1;

  // The first candidate that was found right and has not failed since; -1 when there is none. Where
  // the manifest's first one fails, the next that works is what others are compared with.
  int Default() const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_RECORD_LOG_H_
