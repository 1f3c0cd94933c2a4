// Measuring for `kbundle_bench`: several measurements taken in turns, so that a slow moment of the
// machine falls on all of them alike; the median of the rounds counts.
//
// Not the mean (one page fault or interrupt moves it) and not the minimum (it hides what users
// see).
#ifndef KBUNDLE_TESTS_PERF_ROUNDS_H_
#define KBUNDLE_TESTS_PERF_ROUNDS_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "builder/cli/terminal.h"
#include "builder/record/statistics.h"
#include "kbundle/json.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// One line of the report.
struct BenchRow {
  BenchRow(std::string name, std::string unit, std::string note = "",
           std::optional<double> bar = std::nullopt)
      : name(std::move(name)), unit(std::move(unit)), note(std::move(note)), bar(bar) {}

  std::string name, unit, note;
  std::optional<double> bar;            // value <= bar passes
  double value = 0, low = 0, high = 0;  // median, and the quartiles
  std::string skipped;                  // why there is no value

  bool failed() const { return skipped.empty() && bar && value > *bar; }
};

// Takes one sample, in the row's unit.
using Sample = std::function<Result<double>()>;

class BenchRounds {
 public:
  // Returns the row's number.
  size_t Add(BenchRow row, Sample sample);
  void AddSkipped(BenchRow row, std::string why);
  // A row that is the difference of two others' medians, in their unit times `scale`.
  void AddDifference(BenchRow row, size_t minuend, size_t subtrahend, double scale = 1);
  // One untimed round, then `rounds`. A sample that fails turns its row into a skipped one.
  void Run(int rounds);

  const std::vector<BenchRow>& rows() const { return rows_; }
  bool failed() const;
  void Print(const Terminal& terminal, int rounds) const;
  void WriteJson(JsonWriter& json) const;  // an array

 private:
  struct Difference {
    size_t row, minuend, subtrahend;
    double scale;
  };
  std::vector<BenchRow> rows_;
  std::vector<Sample> samples_;  // empty where the row is skipped or derived
  std::vector<Difference> differences_;
};

// Microseconds that `body` takes.
template <typename Body>
double MicrosecondsOf(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_PERF_ROUNDS_H_
