// Noise must not make a winner. A candidate replaces the default only beyond the least gain and the
// band; and of those that do, the first in the manifest's order that the fastest does not beat in
// turn, so that two tunes of equal code agree more often.
#include "builder/record/verdict.h"

#include <fmt/format.h>

#include "builder/record/protocol.h"

namespace kbundle::builder {
namespace {

// Measured in every round that the default was: dropped ones are no winners.
bool Finished(const CandidateLog& candidate, size_t rounds) {
  return !candidate.failed && !candidate.samples.empty() && candidate.samples.size() == rounds;
}

std::string Percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string ReasonOf(const TuningVerdict& verdict) {
  const std::string band = Percent(verdict.gain.band);
  switch (verdict.kind) {
    case VerdictKind::kFaster:
      return fmt::format("{} faster than the default, noise band {}",
                         Percent(1 - verdict.gain.ratio), band);
    case VerdictKind::kNoise:
      return fmt::format("the fastest is {} faster, within the noise band of {} or the least gain",
                         Percent(1 - verdict.gain.ratio), band);
    case VerdictKind::kDefault:
      return "no candidate is faster than the default";
    case VerdictKind::kOnly:
      return "the only candidate with times";
    case VerdictKind::kNone:
      break;
  }
  return "no candidate has times";
}

}  // namespace

int ProblemLog::Default() const {
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].checked && !candidates[i].failed) return static_cast<int>(i);
  }
  return -1;
}

const char* VerdictName(VerdictKind kind) {
  constexpr const char* kNames[] = {"default", "faster", "noise", "only", "none"};
  return kNames[static_cast<size_t>(kind)];
}

TuningVerdict Judge(const ProblemLog& log) {
  TuningVerdict verdict;
  verdict.base = log.Default();
  const auto& all = log.candidates;
  if (verdict.base >= 0 && !all[verdict.base].samples.empty()) {
    verdict.winner = verdict.base;
    verdict.kind = VerdictKind::kOnly;
    const RoundTimes base = TimesOf(all[verdict.base].samples);
    int fastest = verdict.base;
    RoundTimes fastest_times = base;
    for (size_t i = 0; i < all.size(); ++i) {
      if (static_cast<int>(i) == verdict.base || all[i].failed || all[i].samples.empty()) continue;
      if (verdict.kind == VerdictKind::kOnly) verdict.kind = VerdictKind::kDefault;
      if (!Finished(all[i], base.size())) continue;
      const RoundTimes times = TimesOf(all[i].samples);
      const Comparison gain = Compare(times, base);
      if (gain.ratio >= (fastest == verdict.base ? 1 : verdict.gain.ratio)) continue;
      verdict.gain = gain;
      verdict.kind = gain.FasterBeyond(kMinGain) ? VerdictKind::kFaster : VerdictKind::kNoise;
      fastest = static_cast<int>(i);
      fastest_times = times;
    }
    // Of those that beat the default, the first that the fastest does not beat in turn.
    for (int i = 0; verdict.kind == VerdictKind::kFaster && verdict.winner == verdict.base; ++i) {
      if (i == verdict.base || !Finished(all[i], base.size())) continue;
      const RoundTimes times = TimesOf(all[i].samples);
      const Comparison gain = Compare(times, base);
      const bool close = i == fastest || !Compare(fastest_times, times).FasterBeyond(kMinGain);
      if (!gain.FasterBeyond(kMinGain) || !close) continue;
      verdict.winner = i;
      verdict.gain = gain;
    }
  }
  verdict.reason = ReasonOf(verdict);
  return verdict;
}

}  // namespace kbundle::builder
