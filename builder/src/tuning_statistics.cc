// Figures, quartiles and comparisons.
#include <algorithm>
#include <cmath>

#include "tuning_protocol.h"
#include "tuning_state.h"

namespace kbundle::builder {
namespace {

double Between(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

double RoundFigure(const std::vector<double>& samples) {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const size_t cut = sorted.size() >= 3 ? 1 : 0;
  double sum = 0;
  for (size_t i = cut; i < sorted.size() - cut; ++i) sum += sorted[i];
  return sum / static_cast<double>(sorted.size() - 2 * cut);
}

Quartiles QuartilesOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {Between(values, 0.25), Between(values, 0.5), Between(values, 0.75)};
}

bool Comparison::Faster() const { return rounds > 0 && ratio < 1 - std::max(band, kTuningGain); }

// Both ran in every round that counts, within milliseconds of each other: a drift of the clocks
// moves both, so ratios by round are steadier than times. The median of n has a standard error of
// 1.2533 sigma / sqrt(n), and sigma is 1.4826 median deviations for a normal core; outliers and a
// second mode move neither much.
Comparison Compare(const CandidateState& a, const CandidateState& b) {
  std::vector<double> ratios;
  const int rounds = static_cast<int>(std::min(a.rounds.size(), b.rounds.size()));
  for (int i = 0; i < rounds; ++i) {
    if (!a.timed(i) || !b.timed(i)) continue;
    const auto round = static_cast<size_t>(i);
    ratios.push_back(RoundFigure(b.rounds[round]) / RoundFigure(a.rounds[round]));
  }
  if (ratios.empty()) return {};
  const double median = QuartilesOf(ratios).median;
  std::vector<double> deviations;
  for (double ratio : ratios) deviations.push_back(std::abs(ratio - median));
  const double sigma = 1.4826 * QuartilesOf(deviations).median;
  const double error = 1.2533 * sigma / std::sqrt(static_cast<double>(ratios.size()));
  return {median, std::max(kTuningNoiseFloor, 2 * error / median),
          static_cast<int>(ratios.size())};
}

}  // namespace kbundle::builder
