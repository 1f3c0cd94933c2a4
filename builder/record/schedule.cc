// Nothing of this is stored: each call walks it again from the samples, and where one is missing,
// that is the next step. Shuffling keeps a drift of the clock from favouring whoever comes first.
//
//   check all, then rounds 0, 1, 2 ..   everyone alive once, in an order shuffled anew
//     after rounds 1, 2 and 4           the faster half stays, while there are many
//     after 3 rounds and more           clear losers are dropped
//     until                             no decision is nearer than its noise, or rounds run out
#include "builder/record/schedule.h"

#include <algorithm>
#include <cmath>

#include "builder/record/protocol.h"

namespace kbundle::builder {
namespace {

// SplitMix64: the same everywhere, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

std::vector<int> Shuffled(std::vector<int> items, uint64_t seed, int round) {
  Random random(seed * 1'000'003 + static_cast<uint64_t>(round));
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.Next() % i]);
  return items;
}

// Walks the rounds again from what was measured, until something is missing.
class Walk {
 public:
  explicit Walk(const ProblemLog& log) : log_(log) {}

  TuningStep Run() {
    for (int i : MeasuredCandidates(log_.candidates.size(), log_.seed)) {
      const CandidateLog& candidate = log_.candidates[i];
      if (candidate.failed && candidate.failed_round < 0) continue;
      if (!candidate.checked) return {TuningStep::Kind::kCheck, i, -1};
      alive_.push_back(i);
    }
    for (int round = 0; round < kMaxRounds && !alive_.empty(); ++round) {
      for (int i : Shuffled(alive_, log_.seed, round)) {
        const CandidateLog& candidate = log_.candidates[i];
        if (candidate.failed && candidate.failed_round <= round) continue;
        if (!candidate.samples.contains(round)) return {TuningStep::Kind::kTime, i, round};
      }
      FinishRound(round);
      if (round + 1 >= kMinRounds && Clear()) break;
    }
    return {};
  }

  const std::vector<int>& dropped() const { return dropped_; }

 private:
  // Of the rounds up to this one: what later rounds hold must not change what was decided then.
  RoundTimes TimesUntil(int candidate, int round) const {
    RoundTimes times = TimesOf(log_.candidates[candidate].samples);
    times.erase(times.upper_bound(round), times.end());
    return times;
  }

  void FinishRound(int round) {
    std::erase_if(alive_, [&](int i) {
      return log_.candidates[i].failed && log_.candidates[i].failed_round <= round;
    });
    times_.clear();
    for (int i : alive_) times_.push_back(TimesUntil(i, round));
    if (alive_.size() < 2) return;
    Rank();
    const int taken = round + 1;
    if ((taken == 1 || taken == 2 || taken == 4) && alive_.size() > kFinalists) {
      KeepFastest(std::max(kFinalists, (alive_.size() + 1) / 2));
    }
    if (taken >= kDropAfterRounds) DropClearLosers();
  }

  // ratios_: against the first alive, which is the default as long as that does not fail.
  void Rank() {
    ratios_.clear();
    for (const RoundTimes& times : times_) ratios_.push_back(Compare(times, times_[0]).ratio);
    best_ = static_cast<size_t>(std::min_element(ratios_.begin(), ratios_.end()) - ratios_.begin());
  }

  void KeepFastest(size_t count) {
    std::vector<size_t> order(alive_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin() + 1, order.end(),
                     [this](size_t a, size_t b) { return ratios_[a] < ratios_[b]; });
    std::vector<bool> keep(alive_.size(), false);
    for (size_t i = 0; i < count; ++i) keep[order[i]] = true;
    Keep(keep);
  }

  void DropClearLosers() {
    std::vector<bool> keep(alive_.size(), true);
    for (size_t i = 1; i < alive_.size(); ++i) {
      if (i == best_) continue;
      keep[i] = !Compare(times_[i], times_[best_]).SlowerBeyond(kClearLoss, 2);
    }
    Keep(keep);
  }

  void Keep(const std::vector<bool>& keep) {
    std::vector<int> alive;
    std::vector<RoundTimes> times;
    for (size_t i = 0; i < alive_.size(); ++i) {
      (keep[i] ? alive : dropped_).push_back(alive_[i]);
      if (keep[i]) times.push_back(std::move(times_[i]));
    }
    alive_ = std::move(alive);
    times_ = std::move(times);
    Rank();
  }

  // More rounds would hardly change the winner: no decision is nearer than its band.
  bool Clear() const {
    for (size_t i = 0; i < alive_.size(); ++i) {
      for (size_t against : {size_t{0}, best_}) {
        if (i == against) continue;
        const Comparison c = Compare(times_[i], times_[against]);
        const double threshold = against == 0 ? 1 - kMinGain : 1 / (1 - kMinGain);
        if (c.band > kWideBand && std::abs(c.ratio - threshold) < c.band) return false;
      }
    }
    return true;
  }

  const ProblemLog& log_;
  std::vector<int> alive_, dropped_;
  std::vector<RoundTimes> times_;  // of the alive
  std::vector<double> ratios_;
  size_t best_ = 0;
};

}  // namespace

TuningStep NextStep(const ProblemLog& log) { return Walk(log).Run(); }

std::vector<int> DroppedCandidates(const ProblemLog& log) {
  Walk walk(log);
  walk.Run();
  std::vector<int> dropped = walk.dropped();
  std::sort(dropped.begin(), dropped.end());
  return dropped;
}

std::vector<int> MeasuredCandidates(size_t count, uint64_t seed) {
  std::vector<int> chosen;
  if (count <= kMaxCandidates) {
    for (size_t i = 0; i < count; ++i) chosen.push_back(static_cast<int>(i));
    return chosen;
  }
  // The default, and one at random from each of equal stretches of the rest.
  chosen.push_back(0);
  Random random(seed);
  const size_t rest = count - 1, stretches = kMaxCandidates - 1;
  for (size_t i = 0; i < stretches; ++i) {
    const size_t begin = i * rest / stretches, end = (i + 1) * rest / stretches;
    chosen.push_back(static_cast<int>(1 + begin + random.Next() % (end - begin)));
  }
  return chosen;
}

}  // namespace kbundle::builder
