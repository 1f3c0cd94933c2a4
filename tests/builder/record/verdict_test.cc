// Promise: the tuner's answer survives what clocks do. On synthetic times with drift, outliers,
// bimodal clocks, ties and heavy tails two tunes agree, the winner is near the best, and nothing
// replaces the default that is not faster than it.
#include "builder/record/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "builder/record/protocol.h"
#include "builder/record/schedule.h"

namespace kbundle::builder {
namespace {

using Random = std::mt19937_64;

double Uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }
double Normal(Random& random) {
  return std::sqrt(-2 * std::log(1 - Uniform(random))) *
         std::cos(6.283185307179586 * Uniform(random));
}

// What the machine makes of a true time; `moment` counts samples since the tune began.
using Machine = std::function<double(double time, int moment, Random& random)>;

double Quiet(double time, int, Random& random) { return time * (1 + 0.005 * Normal(random)); }
double Drift(double time, int moment, Random& random) {
  return Quiet(time, moment, random) * (1 + 0.0002 * moment);
}
double Outliers(double time, int moment, Random& random) {
  const double quiet = Quiet(time, moment, random);
  return Uniform(random) < 0.1 ? quiet * (2 + 20 * Uniform(random)) : quiet;
}
// Two clocks 12 % apart; each lasts for some 40 samples.
double Bimodal(double time, int moment, Random& random) {
  const auto phase = static_cast<uint64_t>(moment / 40) * 0x9e3779b97f4a7c15u;
  return Quiet(time, moment, random) * ((phase >> 33 & 1) != 0 ? 1.12 : 1);
}
double HeavyTails(double time, int, Random& random) {
  return time * (1 + 0.004 / std::sqrt(1e-3 + Uniform(random)));
}

ProblemLog Tune(const std::vector<double>& times, const Machine& machine, uint64_t draw) {
  ProblemLog log;
  for (size_t i = 0; i < times.size(); ++i)
    log.candidates.push_back({std::to_string(i), {}, {}, {}, {}, -1});
  Random random(draw);
  int moment = static_cast<int>(random() % 1000);
  for (;;) {
    const TuningStep step = NextStep(log);
    if (step.kind == TuningStep::Kind::kDone) return log;
    CandidateLog& candidate = log.candidates[step.candidate];
    if (step.kind == TuningStep::Kind::kCheck) {
      candidate.checked = true;
      continue;
    }
    for (int i = 0; i < kSamplesPerRound; ++i) {
      candidate.samples[step.round].push_back(machine(times[step.candidate], moment++, random));
    }
  }
}

struct Quality {
  double agree = 0, near_best = 0, not_slower = 0;
};

// Over random problems: true times of 2 to 12 candidates around 100 us, some of them ties.
Quality QualityOf(const Machine& machine) {
  constexpr int kProblems = 120;
  Random random(7);
  Quality quality;
  for (int problem = 0; problem < kProblems; ++problem) {
    std::vector<double> times;
    const size_t count = 2 + random() % 11;
    for (size_t i = 0; i < count; ++i) {
      const bool tie = i > 0 && random() % 4 == 0;
      times.push_back(tie ? times[random() % i] : 1e5 * std::exp(0.35 * Normal(random)));
    }
    const double best = *std::min_element(times.begin(), times.end());
    const int first = Judge(Tune(times, machine, 2 * problem)).winner;
    const int second = Judge(Tune(times, machine, 2 * problem + 1)).winner;
    quality.agree += first == second;
    quality.near_best += times[first] <= 1.03 * best;
    quality.not_slower += times[first] <= times[0];
  }
  return {quality.agree / kProblems, quality.near_best / kProblems, quality.not_slower / kProblems};
}

void ExpectGood(const Machine& machine) {
  const Quality quality = QualityOf(machine);
  EXPECT_GE(quality.agree, 0.95);
  EXPECT_GE(quality.near_best, 0.95);
  EXPECT_EQ(quality.not_slower, 1);
}

TEST(TuningVerdict, HoldsOnAQuietMachine) { ExpectGood(Quiet); }
TEST(TuningVerdict, HoldsUnderDrift) { ExpectGood(Drift); }
TEST(TuningVerdict, HoldsWithOutliers) { ExpectGood(Outliers); }
TEST(TuningVerdict, HoldsOnBimodalClocks) { ExpectGood(Bimodal); }
TEST(TuningVerdict, HoldsWithHeavyTails) { ExpectGood(HeavyTails); }

TEST(TuningVerdict, KeepsTheDefaultAmongTies) {
  int kept = 0;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    kept += Judge(Tune(std::vector<double>(10, 1e5), Outliers, draw)).winner == 0;
  }
  EXPECT_EQ(kept, 100);
}

TEST(TuningVerdict, TakesTheEarlierOfTwoEquallyFastOnes) {
  for (uint64_t draw = 0; draw < 50; ++draw) {
    const TuningVerdict verdict = Judge(Tune({2e5, 1e5, 1e5, 1.005e5}, Quiet, draw));
    EXPECT_EQ(verdict.winner, 1);
    EXPECT_EQ(verdict.kind, VerdictKind::kFaster);
  }
}

TEST(TuningVerdict, DoesNotReplaceTheDefaultForLessThanTheLeastGain) {
  const TuningVerdict verdict = Judge(Tune({1e5, 0.99e5}, Quiet, 1));
  EXPECT_EQ(verdict.winner, 0);
  EXPECT_EQ(verdict.kind, VerdictKind::kNoise);
}

TEST(TuningVerdict, ComparesWithTheNextWhereTheManifestsFirstFails) {
  ProblemLog log = Tune({1e5, 2e5, 1e5}, Quiet, 1);
  log.candidates[0].failed = CandidateFailure{"wrong", "", ""};
  const TuningVerdict verdict = Judge(log);
  EXPECT_EQ(verdict.base, 1);
}

TEST(TuningVerdict, SaysThatNothingWorks) {
  ProblemLog log;
  log.candidates.resize(1);
  log.candidates[0].failed = CandidateFailure{"fault", "", ""};
  EXPECT_EQ(NextStep(log).kind, TuningStep::Kind::kDone);
  EXPECT_EQ(Judge(log).kind, VerdictKind::kNone);
  EXPECT_EQ(Judge(log).winner, -1);
}

TEST(TuningSchedule, MeasuresASpreadOfALargeGridAndFindsANearBestOne) {
  std::vector<double> times;  // smooth over the grid, as grids are
  for (int i = 0; i < 1000; ++i) times.push_back(1e5 * (1 + std::abs(i - 700) / 400.0));
  const ProblemLog log = Tune(times, Quiet, 3);
  EXPECT_EQ(MeasuredCandidates(1000, 1).size(), kMaxCandidates);
  EXPECT_EQ(MeasuredCandidates(1000, 1), MeasuredCandidates(1000, 1));
  EXPECT_EQ(MeasuredCandidates(1000, 1).front(), 0);
  size_t taken = 0;
  for (const CandidateLog& candidate : log.candidates) taken += candidate.samples.size();
  EXPECT_LT(taken, kMaxCandidates * 7);
  EXPECT_LE(times[Judge(log).winner], 1.05e5);
}

TEST(TuningSchedule, DropsClearLosersButNeverTheDefault) {
  const ProblemLog log = Tune({3e5, 1e5, 2e5}, Quiet, 1);
  EXPECT_EQ(log.candidates[2].samples.size(), static_cast<size_t>(kDropAfterRounds));
  EXPECT_GE(log.candidates[0].samples.size(), static_cast<size_t>(kMinRounds));
  EXPECT_EQ(DroppedCandidates(log), std::vector<int>{2});
}

TEST(TuningSchedule, GoesOnWithoutACandidateThatFailsWhileTimed) {
  ProblemLog log;
  log.candidates.resize(3);
  for (CandidateLog& candidate : log.candidates) candidate.checked = true;
  Random random(1);
  for (TuningStep step = NextStep(log); step.kind != TuningStep::Kind::kDone;
       step = NextStep(log)) {
    CandidateLog& candidate = log.candidates[step.candidate];
    if (step.candidate == 1 && step.round == 5) {
      candidate.failed = CandidateFailure{"hang", "", ""};
      candidate.failed_round = 5;
    } else {
      candidate.samples[step.round] = {Quiet(1e5, 0, random)};
    }
  }
  EXPECT_EQ(log.candidates[1].samples.size(), 5u);
  EXPECT_GE(log.candidates[2].samples.size(), static_cast<size_t>(kMinRounds));
}

}  // namespace
}  // namespace kbundle::builder
