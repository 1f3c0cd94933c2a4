// `tune` is three commands in one (measure, --revalidate, --check), whose options do not all go
// together: what contradicts itself is refused before a GPU is touched. That some candidates fail
// is the usual course of a tune; only for the candidates of --only does it decide the exit code.
#include "builder/cli/tune.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "builder/cli/tune_check.h"
#include "builder/cli/tune_progress.h"
#include "builder/device/visible.h"
#include "builder/support/json_text.h"

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

Json JsonOfTune(const TuneReport& report) {
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
          {"revalidated", report.revalidated},
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
          {"unanswered", report.unanswered},
          {"files", report.files},
          {"warnings", report.warnings}};
}

void PrintRevalidated(const Terminal& terminal, const TuneReport& report) {
  terminal.Line(report.problems == 0
                    ? "no record is stale: winners and defaults have the code that was measured"
                    : std::to_string(report.revalidated) + " of " +
                          std::to_string(report.problems) +
                          " stale records hold for today's code: winner and default were measured "
                          "again, and nothing else");
  for (const std::string& file : report.files) terminal.Line("written: " + file);
}

void PrintTuned(const Terminal& terminal, const TuneReport& report) {
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
  for (const std::string& problem : report.unanswered) {
    terminal.Line(terminal.Paint(Terminal::Style::kBad, "no record") + " of " + problem);
  }
  for (const std::string& file : report.files) terminal.Line("written: " + file);
}

}  // namespace

int TuneCommand::CheckRecords(const Terminal& terminal) const {
  TuneCheckCommand command;
  const SpaceOptions& space = options.space;
  command.options = {space.paths,
                     target,
                     space.cache_dir,
                     space.jobs,
                     space.op,
                     options.problems_file,
                     options.reference.python};
  return command.Run(terminal);
}

std::string TuneCommand::Misuse() const {
  if (check) return device.empty() ? "" : "--check needs no GPU; leave out --device";
  if (target.empty()) return "--target is required";
  if (options.held_out && options.out.empty()) {
    return "--held-out needs --out FOLDER: records beside a manifest are of problems that were "
           "tuned";
  }
  if (options.revalidate && (options.held_out || !options.out.empty() || !options.only.empty() ||
                             !options.problem.empty() || !options.problems_file.empty())) {
    return "--revalidate works on the records beside the manifests; leave out --problem, "
           "--problems, --held-out, --only and --out";
  }
  if (device.empty()) return "";
  if (const std::string wrong = MisspelledGpus(device); !wrong.empty()) return "--device " + wrong;
  if (options.replay.empty() && target == "host") {
    return "--device chooses GPUs, and --target host is the CPU";
  }
  return "";
}

int TuneCommand::Run(const Terminal& terminal, const std::atomic<bool>& cancel) const {
  if (const std::string misuse = Misuse(); !misuse.empty()) return terminal.Usage("tune", misuse);
  if (check) return CheckRecords(terminal);
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
  if (!device.empty()) {
    const auto listed = static_cast<int>(std::count(device.begin(), device.end(), ',')) + 1;
    const Result<int> gpus = options.replay.empty() ? ShowGpus(device) : listed;
    if (!gpus.ok()) return terminal.Fail(gpus.status());
    wanted.gpus = *gpus;
  }
  TuneProgress progress(terminal);
  const Result<TuneReport> report = Tune(wanted, progress, cancel);
  progress.Clear();
  if (!report.ok()) return terminal.Fail(report.status());
  if (terminal.json()) {
    terminal.Line(JsonText(JsonOfTune(*report)));
  } else {
    wanted.revalidate ? PrintRevalidated(terminal, *report) : PrintTuned(terminal, *report);
  }
  if (wanted.revalidate) return report->revalidated == report->problems ? kExitOk : kExitNo;
  const bool asked = !wanted.only.empty() && !report->failures.empty();
  const bool none = report->measured == 0 || !report->unanswered.empty();
  return asked || none ? kExitNo : kExitOk;
}

}  // namespace kbundle::builder
