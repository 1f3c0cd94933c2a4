// From samples to times and comparisons. Pure: no clock, no device, no state.
#ifndef KBUNDLE_BUILDER_RECORD_STATISTICS_H_
#define KBUNDLE_BUILDER_RECORD_STATISTICS_H_

#include <map>
#include <vector>

namespace kbundle::builder {

double Median(std::vector<double> values);  // not empty

// Nanoseconds a launch, by round.
using RoundSamples = std::map<int, std::vector<double>>;
// Of each round the median of its samples; rounds without samples are left out.
using RoundTimes = std::map<int, double>;
RoundTimes TimesOf(const RoundSamples& samples);

struct Quartiles {
  double low = 0, median = 0, high = 0;
};
// Linear between order statistics, after trimming; `values` is not empty.
Quartiles QuartilesOf(std::vector<double> values);
Quartiles QuartilesOf(const RoundTimes& times);

// How `candidate` compares with `base` in the rounds that both have: 0.9 is a tenth faster.
struct Comparison {
  double ratio = 1;  // median over rounds
  double band = 1;   // relative noise of the ratio; 1 (nothing is known) below three common rounds
  int rounds = 0;
  bool FasterBeyond(double gain) const;  // by more than both the band and `gain`
  bool SlowerBeyond(double loss, double bands) const;
};
Comparison Compare(const RoundTimes& candidate, const RoundTimes& base);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_RECORD_STATISTICS_H_
