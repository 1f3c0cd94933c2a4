// The seed is random where none is given, because a fixed one would run the same inputs for ever;
// it is printed with the result and stands in the command that shows a failure again.
#include "builder/cli/test.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "builder/cli/tune_progress.h"
#include "builder/support/json_text.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Json JsonOfTest(const ConformanceReport& report) {
  Json variants = Json::array();
  for (const VariantOutcome& one : report.variants) {
    variants.push_back({{"variant", one.variant},
                        {"ok", one.right()},
                        {"problems", one.problems},
                        {"worst", one.worst},
                        {"kind", one.kind},
                        {"message", one.message},
                        {"command", one.command}});
  }
  return {{"ok", report.failed() == 0}, {"device", report.device},    {"variants", variants},
          {"failed", report.failed()},  {"files", report.files},      {"seed", report.seed},
          {"seconds", report.seconds},  {"warnings", report.warnings}};
}

void PrintVariant(const Terminal& terminal, const VariantOutcome& one) {
  if (one.right()) {
    terminal.Line(fmt::format("{}  {}  {} problem{}, worst error {:.2g} of the tolerance",
                              terminal.Paint(Terminal::Style::kGood, "ok"), one.variant,
                              one.problems, one.problems == 1 ? "" : "s", one.worst));
    return;
  }
  const std::string word = one.kind == "never" ? "never launched" : one.kind;
  terminal.Line(fmt::format("{}  {}: {}", terminal.Paint(Terminal::Style::kBad, word), one.variant,
                            one.message));
  if (!one.command.empty()) terminal.Line("  to see it again: " + one.command);
}

void PrintOutcome(const Terminal& terminal, const ConformanceReport& report) {
  for (const VariantOutcome& one : report.variants) PrintVariant(terminal, one);
  for (const std::string& file : report.files) terminal.Line("written: " + file);
  const size_t right = report.variants.size() - static_cast<size_t>(report.failed());
  terminal.Line(fmt::format("{}: {} of {} variants right, seed {}, {} s",
                            terminal.Paint(Terminal::Style::kBold, report.device), right,
                            report.variants.size(), report.seed, Fixed(report.seconds, 1)));
}

}  // namespace

int TestCommand::Run(const Terminal& terminal, const std::atomic<bool>& cancel) const {
  const auto device = DeviceFromTargetName(options.space.target);
  if (!device.ok()) return terminal.Usage("test", "--target: " + device.status().message());
  ConformanceOptions wanted = options;
  wanted.reference.seed = seed ? *seed : std::random_device()();
  if (candidate_limit > 0) {
    wanted.measurer.candidate_limit =
        std::chrono::milliseconds(static_cast<int64_t>(candidate_limit * 1000));
  }
  if (memory_mib > 0) wanted.measurer.memory_bytes = int64_t{memory_mib} << 20;
  TuneProgress progress(terminal);
  const Result<ConformanceReport> report = RunConformance(wanted, progress, cancel);
  progress.Clear();
  if (!report.ok()) return terminal.Fail(report.status());
  for (const std::string& warning : report->warnings) terminal.Warn(warning);
  if (terminal.json()) {
    terminal.Line(JsonText(JsonOfTest(*report)));
  } else {
    PrintOutcome(terminal, *report);
  }
  return report->failed() > 0 || report->variants.empty() ? kExitNo : kExitOk;
}

}  // namespace kbundle::builder
