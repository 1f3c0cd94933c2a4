// Who won, and why.
#include <fmt/format.h>

#include "tuning_protocol.h"
#include "tuning_state.h"

namespace kbundle::builder {
namespace {

double MedianFigure(const CandidateState& candidate) {
  std::vector<double> figures;
  for (const std::vector<double>& round : candidate.rounds) {
    if (!round.empty()) figures.push_back(RoundFigure(round));
  }
  return figures.empty() ? 0 : QuartilesOf(figures).median;
}

// The fastest by its comparison with `than`, among those that are not it.
size_t FastestAgainst(const ProblemState& state, const std::vector<size_t>& alive, size_t than) {
  size_t best = than;
  double ratio = 1;
  for (size_t i : alive) {
    if (i == than) continue;
    const Comparison comparison = Compare(state.candidates[than], state.candidates[i]);
    if (comparison.rounds > 0 && comparison.ratio < ratio) ratio = comparison.ratio, best = i;
  }
  return best;
}

std::string Percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

Verdict Kept(const ProblemState& state, const std::vector<size_t>& alive, Verdict verdict) {
  const size_t best = FastestAgainst(state, alive, verdict.winner);
  if (best == verdict.winner) {
    verdict.kind = "default";
    verdict.reason = "the first of the manifest, and none is faster";
    return verdict;
  }
  const Comparison comparison =
      Compare(state.candidates[verdict.winner], state.candidates[best]);
  verdict.kind = "noise";
  verdict.reason =
      fmt::format("the first of the manifest; {} is faster by {}, which does not exceed {}",
                  state.candidates[best].variant, Percent(1 - comparison.ratio),
                  comparison.band > kTuningGain
                      ? "the noise band of " + Percent(comparison.band)
                      : Percent(kTuningGain));
  return verdict;
}

}  // namespace

Verdict Judge(const ProblemState& state) {
  std::vector<size_t> alive;
  for (size_t i = 0; i < state.candidates.size(); ++i) {
    if (state.candidates[i].alive()) alive.push_back(i);
  }
  Verdict verdict;
  if (alive.empty()) {
    verdict.kind = "none";
    verdict.reason = "every candidate failed";
    return verdict;
  }
  const size_t first = verdict.winner = alive.front();
  if (alive.size() == 1) {
    verdict.kind = "only";
    verdict.reason = "the only candidate that is legal and right";
    return verdict;
  }
  // In manifest order: a later one must beat the best so far, not only the default.
  for (size_t i : alive) {
    if (i != verdict.winner &&
        Compare(state.candidates[verdict.winner], state.candidates[i]).Faster()) {
      verdict.winner = i;
    }
  }
  if (verdict.winner == first) return Kept(state, alive, verdict);
  const Comparison gain = Compare(state.candidates[first], state.candidates[verdict.winner]);
  if (!gain.Faster()) {  // each step was, but not the first against the last
    verdict.winner = first;
    return Kept(state, alive, verdict);
  }
  verdict.kind = "faster";
  verdict.gain = 1 / gain.ratio;
  verdict.reason = fmt::format("{:.3g} us against {:.3g} us of the default: faster by {}, noise {}",
                               MedianFigure(state.candidates[verdict.winner]) / 1e3,
                               MedianFigure(state.candidates[first]) / 1e3,
                               Percent(1 - gain.ratio), Percent(gain.band));
  return verdict;
}

}  // namespace kbundle::builder
