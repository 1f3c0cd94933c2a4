#include "perf/rounds.h"

#include <algorithm>
#include <utility>

namespace kbundle::builder {
namespace {

// Of sorted values; a nearest-rank quantile is enough for a spread.
double Quantile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

size_t BenchRounds::Add(BenchRow row, Sample sample) {
  rows_.push_back(std::move(row));
  samples_.push_back(std::move(sample));
  return rows_.size() - 1;
}

void BenchRounds::AddSkipped(BenchRow row, std::string why) {
  row.skipped = std::move(why);
  Add(std::move(row), nullptr);
}

void BenchRounds::AddDifference(BenchRow row, size_t minuend, size_t subtrahend, double scale) {
  const size_t number = Add(std::move(row), nullptr);
  differences_.push_back({number, minuend, subtrahend, scale});
}

void BenchRounds::Run(int rounds) {
  std::vector<std::vector<double>> values(rows_.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (!samples_[i] || !rows_[i].skipped.empty()) continue;
      const Result<double> value = samples_[i]();
      if (!value.ok()) {
        rows_[i].skipped = value.status().message();
      } else if (round >= 0) {
        values[i].push_back(*value);
      }
    }
  }
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (values[i].empty() || !rows_[i].skipped.empty()) continue;
    std::sort(values[i].begin(), values[i].end());
    rows_[i].value = Median(values[i]);
    rows_[i].low = Quantile(values[i], 0.25);
    rows_[i].high = Quantile(values[i], 0.75);
  }
  for (const Difference& difference : differences_) {
    BenchRow& row = rows_[difference.row];
    const BenchRow& minuend = rows_[difference.minuend];
    const BenchRow& subtrahend = rows_[difference.subtrahend];
    row.skipped = !minuend.skipped.empty() ? minuend.skipped : subtrahend.skipped;
    row.value = row.low = row.high = (minuend.value - subtrahend.value) * difference.scale;
  }
}

bool BenchRounds::failed() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const BenchRow& row) { return row.failed(); });
}

void BenchRounds::Print(const Terminal& terminal, int rounds) const {
  Table table({"WHAT", "MEDIAN", "UNIT", "QUARTILES", "BAR", "", "NOTE"});
  table.Right(1);
  table.Right(4);
  for (const BenchRow& row : rows_) {
    const int decimals = row.unit == "bytes" ? 0 : row.unit == "ns" ? 1 : 2;
    const std::string bar = row.bar ? Fixed(*row.bar, decimals) : "";
    if (!row.skipped.empty()) {
      table.Row({row.name, "-", row.unit, "", bar, "", "skipped: " + row.skipped});
      continue;
    }
    const std::string verdict = !row.bar       ? ""
                                : row.failed() ? terminal.Paint(Terminal::Style::kBad, "FAIL")
                                               : terminal.Paint(Terminal::Style::kGood, "pass");
    const std::string spread =
        row.low == row.high ? "" : Fixed(row.low, decimals) + ".." + Fixed(row.high, decimals);
    table.Row({row.name, Fixed(row.value, decimals), row.unit, spread, bar, verdict, row.note});
  }
  table.Print(terminal);
  terminal.Line("median of " + std::to_string(rounds) +
                " interleaved rounds after one untimed round");
}

void BenchRounds::WriteJson(JsonWriter& json) const {
  json.BeginArray();
  for (const BenchRow& row : rows_) {
    json.BeginObject().Key("name").Text(row.name).Key("unit").Text(row.unit);
    if (row.skipped.empty()) {
      json.Key("value").Number(row.value).Key("low").Number(row.low).Key("high").Number(row.high);
    } else {
      json.Key("value").Null().Key("skipped").Text(row.skipped);
    }
    json.Key("bar");
    row.bar ? json.Number(*row.bar) : json.Null();
    json.Key("pass");
    row.bar&& row.skipped.empty() ? json.Bool(!row.failed()) : json.Null();
    json.Key("note").Text(row.note).EndObject();
  }
  json.EndArray();
}

}  // namespace kbundle::builder
