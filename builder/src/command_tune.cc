#include "command_tune.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// "90", "90s", "10m", "1.5h".
std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number > 0) || number > 1e6) return std::nullopt;
  const std::string unit(end, text.data() + text.size());
  const double seconds = unit.empty() || unit == "s" ? 1
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                                                     : 0;
  if (seconds == 0) return std::nullopt;
  return std::chrono::milliseconds(static_cast<int64_t>(number * seconds * 1000));
}

class TuneProgress : public TuneReporter {
 public:
  TuneProgress(const Terminal& terminal, bool json) : terminal_(terminal), line_(terminal, json) {}
  void Progress(size_t finished, size_t total, const std::string& what) override {
    line_.Progress(static_cast<int>(finished), static_cast<int>(total), what);
  }
  void Warn(const std::string& text) override {
    line_.Clear();
    terminal_.Warn(text);
  }
  void Note(const std::string& text) override {
    line_.Clear();
    terminal_.Note(text);
  }
  void Clear() { line_.Clear(); }

 private:
  const Terminal& terminal_;
  ProgressLine line_;
};

Json ToJson(const TuneReport& report) {
  Json failures = Json::array();
  for (const TuneFailure& failure : report.failures) {
    failures.push_back({{"problem", failure.problem},
                        {"variant", failure.variant},
                        {"kind", failure.kind},
                        {"message", failure.message},
                        {"command", failure.command}});
  }
  return {{"device", report.device},
          {"problems", report.problems},
          {"measured", report.measured},
          {"skipped", report.skipped},
          {"candidates", report.candidates},
          {"winners_other_than_default", report.changed},
          {"geometric_mean_gain", report.geometric_gain},
          {"best_gain", report.best_gain},
          {"best_problem", report.best_problem},
          {"spread", report.spread},
          {"restarts", report.restarts},
          {"seconds", report.seconds},
          {"load_seconds", report.load_seconds},
          {"out_of_budget", report.out_of_budget},
          {"failures", std::move(failures)},
          {"files", report.files},
          {"warnings", report.warnings}};
}

void PrintSummary(const Terminal& terminal, const TuneReport& report) {
  terminal.Line(terminal.Paint(Terminal::Style::kBold, report.device) + ": " +
                std::to_string(report.measured) + " of " + std::to_string(report.problems) +
                " problems, " + std::to_string(report.candidates) + " candidates, " +
                Fixed(report.seconds, 1) + " s");
  if (report.out_of_budget) terminal.Line("the budget is spent; --budget with more, or --op");
  terminal.Line("winner other than the default in " + std::to_string(report.changed) + "; gain " +
                Fixed(report.geometric_gain, 3) + " in the geometric mean, " +
                Fixed(report.best_gain, 2) + " at best" +
                (report.best_problem.empty() ? "" : ": " + report.best_problem));
  terminal.Line("spread of samples " + Fixed(100 * report.spread, 1) + " %");
  for (const TuneFailure& failure : report.failures) {
    terminal.Line(terminal.Paint(Terminal::Style::kBad, failure.kind) + " " + failure.variant +
                  ": " + failure.message + "\n  to see it again: " + failure.command);
  }
  for (const std::string& file : report.files) terminal.Line("written: " + file);
}

}  // namespace

int TuneCommand::Run(const Terminal& terminal, const std::atomic<bool>& cancel) const {
  TuneOptions wanted = options;
  wanted.space.target = target;
  if (!budget.empty()) {
    const auto parsed = ParseDuration(budget);
    if (!parsed) {
      return terminal.Usage("tune", "--budget \"" + budget + "\": a time like 90s, 10m or 1.5h");
    }
    wanted.budget = *parsed;
  }
  if (candidate_limit > 0) {
    wanted.measurer.candidate_limit =
        std::chrono::milliseconds(static_cast<int64_t>(candidate_limit * 1000));
  }
  if (compile_limit > 0) wanted.space.compile_limit = std::chrono::seconds(compile_limit);
  if (memory_mib > 0) wanted.measurer.memory_bytes = int64_t{memory_mib} << 20;
  TuneProgress progress(terminal, json);
  const Result<TuneReport> report = Tune(wanted, progress, cancel);
  progress.Clear();
  if (!report.ok()) return terminal.Fail(report.status());
  if (json) {
    terminal.Line(ToJson(*report).dump());
  } else {
    PrintSummary(terminal, *report);
  }
  const bool asked = !wanted.only.empty() && !report->failures.empty();
  return asked || report->measured == 0 ? kExitNo : kExitOk;
}

}  // namespace kbundle::builder
