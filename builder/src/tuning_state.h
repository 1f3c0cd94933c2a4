// What is known of one problem's candidates while it is tuned, and everything that follows from it:
// the next step, and the verdict. Pure: no clock, no device, no randomness but a fixed seed, so that
// a resumed tune goes on exactly where a killed one stopped.
#ifndef KBUNDLE_BUILDER_TUNING_STATE_H_
#define KBUNDLE_BUILDER_TUNING_STATE_H_

#include <optional>
#include <string>
#include <vector>

namespace kbundle::builder {

// How a candidate failed. kind: wrong, outside, fault, abort, hang, memory, output, load, launch,
// compile. command: shows it again.
struct TuningFailure {
  std::string kind, message, command;
  bool operator==(const TuningFailure&) const = default;
};

struct CandidateState {
  std::string variant;      // id, "@target" included
  std::string fingerprint;  // of its code
  bool checked = false;     // its numbers are right
  std::optional<TuningFailure> failure;
  // Nanoseconds a launch; rounds[r] is empty while round r is not measured.
  std::vector<std::vector<double>> rounds;

  bool alive() const { return checked && !failure; }
  bool timed(int round) const {
    return round < static_cast<int>(rounds.size()) && !rounds[static_cast<size_t>(round)].empty();
  }
};

// Candidates in manifest order; the first is the default.
struct ProblemState {
  std::string problem;  // as a line of JSON; also the seed of shuffles
  std::vector<CandidateState> candidates;
};

// A round's figure: the mean of the samples without the fastest and the slowest (of three or more).
double RoundFigure(const std::vector<double>& samples);

struct Quartiles {
  double q25 = 0, median = 0, q75 = 0;
  bool operator==(const Quartiles&) const = default;
};
// By linear interpolation. `values` is not empty.
Quartiles QuartilesOf(std::vector<double> values);

// b's time over a's, round by round, where both are timed.
struct Comparison {
  double ratio = 1;   // median; below 1: b is faster
  double band = 0;    // half width of the noise band, relative
  int rounds = 0;     // 0: nothing to compare

  // b is faster by more than the band and by more than kTuningGain.
  bool Faster() const;
};
Comparison Compare(const CandidateState& a, const CandidateState& b);

// The candidates still in the race in `round`, by what the rounds before it say. The default stays
// as long as it is alive.
std::vector<size_t> InRound(const ProblemState& state, int round);

struct TuningStep {
  enum class Kind { kCheck, kTime, kDone };
  Kind kind = Kind::kDone;
  size_t candidate = 0;
  int round = 0;
  bool operator==(const TuningStep&) const = default;
};
// First every candidate is checked, in manifest order, then round after round is timed.
TuningStep NextStep(const ProblemState& state);

struct Verdict {
  // "only": one candidate was alive; "default": it is the fastest; "noise": others are not faster
  // by enough; "faster": the winner is; "none": all failed.
  std::string kind;
  std::string reason;
  size_t winner = 0;
  double gain = 1;  // the default's time over the winner's
};
Verdict Judge(const ProblemState& state);

// Which of `count` grid points, in manifest order, to try when only `limit` can be: the first, and a
// spread of the rest that the seed text decides. Sorted, distinct.
std::vector<size_t> SpreadOf(size_t count, size_t limit, const std::string& seed);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNING_STATE_H_
