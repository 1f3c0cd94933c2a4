// Which candidate a problem gets, and why. Pure.
#ifndef KBUNDLE_BUILDER_RECORD_VERDICT_H_
#define KBUNDLE_BUILDER_RECORD_VERDICT_H_

#include <cstdint>
#include <string>

#include "builder/record/log.h"

namespace kbundle::builder {

enum class VerdictKind : uint8_t {
  kDefault,  // nothing was faster than the default
  kFaster,   // the winner replaces the default
  kNoise,    // something was, but not beyond noise and the least gain: the default stays
  kOnly,     // one candidate has times
  kNone,     // none has
};
const char* VerdictName(VerdictKind kind);  // "default", "faster", "noise", "only", "none"

struct TuningVerdict {
  VerdictKind kind = VerdictKind::kNone;
  int winner = -1, base = -1;  // in ProblemLog::candidates; base: the default
  Comparison gain;             // the winner (kNoise: the fastest) against the default
  std::string reason;          // "12.3 % faster than the default, noise band 0.4 %"
};
TuningVerdict Judge(const ProblemLog& log);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_RECORD_VERDICT_H_
