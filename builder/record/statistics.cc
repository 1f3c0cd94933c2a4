// Candidates are compared within a round and not across rounds, where a GPU's clocks drift: of the
// ratios of common rounds the median is taken, and its error from their median deviation, which an
// outlier does not move. With fewer than three common rounds nothing is known of the error.
#include "builder/record/statistics.h"

#include <algorithm>
#include <cmath>

#include "builder/record/protocol.h"

namespace kbundle::builder {
namespace {

constexpr double kSigmaPerDeviation = 1.4826;  // of a normal distribution's median deviation
constexpr double kMedianError = 1.2533;        // of a median, in sigma / sqrt(n)
constexpr int kMinCommonRounds = 3;

// Of sorted values, linear between neighbours.
double At(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

RoundTimes TimesOf(const RoundSamples& samples) {
  RoundTimes times;
  for (const auto& [round, values] : samples) {
    if (!values.empty()) times[round] = Median(values);
  }
  return times;
}

Quartiles QuartilesOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<ptrdiff_t>(kTrim * static_cast<double>(values.size()));
  const std::vector<double> kept(values.begin() + cut, values.end() - cut);
  return {At(kept, 0.25), At(kept, 0.5), At(kept, 0.75)};
}

Quartiles QuartilesOf(const RoundTimes& times) {
  std::vector<double> values;
  for (const auto& [round, time] : times) values.push_back(time);
  return QuartilesOf(std::move(values));
}

bool Comparison::FasterBeyond(double gain) const { return 1 - ratio > std::max(gain, band); }

bool Comparison::SlowerBeyond(double loss, double bands) const {
  return ratio - 1 > std::max(loss, bands * band);
}

Comparison Compare(const RoundTimes& candidate, const RoundTimes& base) {
  std::vector<double> ratios;
  for (const auto& [round, time] : candidate) {
    const auto found = base.find(round);
    if (found != base.end() && found->second > 0) ratios.push_back(time / found->second);
  }
  Comparison result;
  result.rounds = static_cast<int>(ratios.size());
  if (ratios.empty()) return result;
  result.ratio = Median(ratios);
  if (result.rounds < kMinCommonRounds) return result;
  for (double& ratio : ratios) ratio = std::abs(ratio - result.ratio);
  const double sigma = kSigmaPerDeviation * Median(ratios);
  result.band = kBandErrors * kMedianError * sigma / std::sqrt(result.rounds);
  return result;
}

}  // namespace kbundle::builder
