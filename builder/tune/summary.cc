// A gain is the ratio of default and winner within one record, whose times were taken by turns; in
// the mean of all problems those whose default won count as 1.
#include "builder/tune/summary.h"

#include <cmath>
#include <string>

#include "builder/record/protocol.h"

namespace kbundle::builder {

void SummarizeRecords(const std::vector<TuningRecord>& records, TuneReport* report) {
  double logs = 0;
  int counted = 0;
  std::vector<double> spreads;
  for (const TuningRecord& record : records) {
    for (const RecordCandidate& one : record.candidates) {
      if (one.us) spreads.push_back((one.us->high - one.us->low) / one.us->median);
    }
    const RecordCandidate* winner = record.Find(record.winner);
    if (winner == nullptr || !winner->us) continue;
    const double gain = record.winner == record.base ? 1 : 1 / winner->ratio;
    report->changed += record.winner != record.base;
    logs += std::log(gain);
    ++counted;
    if (gain <= report->best_gain) continue;
    report->best_gain = gain;
    report->best_problem = record.op + " " + record.problem.dump();
  }
  if (counted > 0) report->geometric_gain = std::exp(logs / counted);
  if (!spreads.empty()) report->spread = QuartilesOf(spreads).median;
}

}  // namespace kbundle::builder
