// What to measure next.
#include <algorithm>
#include <limits>

#include "kbundle/key.h"
#include "tuning_protocol.h"
#include "tuning_state.h"

namespace kbundle::builder {
namespace {

// splitmix64: small, and the same everywhere, which the standard library's shuffles are not.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed ^ kTuningSeed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  size_t Below(size_t count) { return static_cast<size_t>(Next() % count); }

 private:
  uint64_t state_;
};

std::vector<size_t> Shuffled(std::vector<size_t> items, const std::string& text, int round) {
  Numbers numbers(Xxh3(text.data(), text.size()) + static_cast<uint64_t>(round));
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[numbers.Below(i)]);
  return items;
}

// The median of the figures of the rounds before `round`; infinite when there are none.
double FigureBefore(const CandidateState& candidate, int round) {
  std::vector<double> figures;
  for (int i = 0; i < round; ++i) {
    if (candidate.timed(i)) figures.push_back(RoundFigure(candidate.rounds[static_cast<size_t>(i)]));
  }
  return figures.empty() ? std::numeric_limits<double>::infinity() : QuartilesOf(figures).median;
}

// Those that go on after the rounds before `round`. The default, where it is alive, is the first.
std::vector<size_t> Survivors(const ProblemState& state, std::vector<size_t> racing, int round) {
  if (racing.size() < 2) return racing;
  std::vector<double> figures;
  for (size_t i : racing) figures.push_back(FigureBefore(state.candidates[i], round));
  std::vector<double> sorted = figures;
  std::sort(sorted.begin(), sorted.end());
  double limit = std::numeric_limits<double>::infinity();
  if (round >= kTuningDropAfter) limit = sorted.front() * kTuningDropFactor;
  if (racing.size() > kTuningHalvingKeeps) {
    const size_t keep = std::max<size_t>(kTuningHalvingKeeps, (racing.size() + 1) / 2);
    limit = std::min(limit, sorted[keep - 1]);
  }
  std::vector<size_t> kept;
  for (size_t i = 0; i < racing.size(); ++i) {
    if (i == 0 || figures[i] <= limit) kept.push_back(racing[i]);
  }
  return kept;
}

}  // namespace

std::vector<size_t> InRound(const ProblemState& state, int round) {
  std::vector<size_t> racing;
  for (size_t i = 0; i < state.candidates.size(); ++i) {
    if (state.candidates[i].alive()) racing.push_back(i);
  }
  if (racing.size() == 1) return {};  // nothing to compare it with
  for (int i = 1; i <= round; ++i) racing = Survivors(state, std::move(racing), i);
  return racing;
}

TuningStep NextStep(const ProblemState& state) {
  for (size_t i = 0; i < state.candidates.size(); ++i) {
    const CandidateState& candidate = state.candidates[i];
    if (!candidate.checked && !candidate.failure) return {TuningStep::Kind::kCheck, i, 0};
  }
  for (int round = 0; round < kTuningRounds; ++round) {
    for (size_t i : Shuffled(InRound(state, round), state.problem, round)) {
      if (!state.candidates[i].timed(round)) return {TuningStep::Kind::kTime, i, round};
    }
  }
  return {};
}

std::vector<size_t> SpreadOf(size_t count, size_t limit, const std::string& seed) {
  std::vector<size_t> picked;
  if (limit == 0 || limit >= count) {
    for (size_t i = 0; i < count; ++i) picked.push_back(i);
    return picked;
  }
  // One from each of limit - 1 equal stretches of the grid, so that every tunable's values are seen.
  picked.push_back(0);
  Numbers numbers(Xxh3(seed.data(), seed.size()));
  const size_t rest = count - 1;
  for (size_t i = 0; i + 1 < limit; ++i) {
    const size_t begin = 1 + i * rest / (limit - 1), end = 1 + (i + 1) * rest / (limit - 1);
    picked.push_back(begin + numbers.Below(end - begin));
  }
  return picked;
}

}  // namespace kbundle::builder
