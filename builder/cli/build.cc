// What the command line alone shows to be wrong, a misspelled target or a missing -o, is refused
// here: nobody should learn of it after minutes of compiling.
#include "builder/cli/build.h"

#include "builder/pipeline/build_work.h"
#include "builder/pipeline/expand_targets.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

void PrintSummary(const Terminal& terminal, const BuildOptions& options,
                  const BuildReport& report) {
  const std::string left_out =
      options.lean ? " (" + std::to_string(report.left_out) + " left out)" : "";
  const auto counted = [](int number, const char* what) {
    return Counted(static_cast<uint64_t>(number), what);
  };
  const std::string counts = counted(report.variants, "variant") + left_out + ", " +
                             counted(report.objects, "code object") + " (" +
                             std::to_string(report.compiled) + " compiled, " +
                             std::to_string(report.reused) + " reused";
  const std::string failed =
      report.failed > 0 ? ", " + std::to_string(report.failed) + " failed)" : ")";
  if (options.dry_run) {
    terminal.Line("dry run: " + counts + failed);
    return;
  }
  const std::string time = ", " + Fixed(report.seconds, 1) + " s";
  if (!options.only.empty()) {
    terminal.Line(options.only + ": " + counts + failed + time);
    return;
  }
  terminal.Line(terminal.Paint(Terminal::Style::kBold, options.output) + ": " + counts + failed +
                ", " + Grouped(report.bundle_bytes) + " bytes" + time);
}

}  // namespace

Status CheckNames(const BuildOptions& options) {
  for (const std::string& target : ExpandTargets(options.targets)) {
    Result<Target> parsed = Target::Parse(target);
    if (!parsed.ok()) return std::move(parsed).status().Annotate("--target");
  }
  return WantedProviders(options.providers).status();
}

int BuildCommand::Run(const Terminal& terminal, const std::atomic<bool>& cancel) const {
  if (const Status status = CheckNames(options); !status.ok()) {
    return terminal.Usage("build", status.message());
  }
  if (options.output.empty() && options.writes()) {
    return terminal.Usage("build", "-o is required: where to write the bundle");
  }
  ProgressLine progress(terminal, terminal.json() || options.plan);
  const Result<BuildReport> report = Build(options, progress, cancel);
  progress.Clear();
  if (!report.ok()) return terminal.Fail(report.status(), progress.failures());
  if (options.plan) {
    terminal.Out(report->plan);
  } else if (terminal.json()) {
    terminal.Line(report->ToJson());
  } else {
    PrintSummary(terminal, options, *report);
  }
  return report->failed > 0 ? kExitNo : kExitOk;
}

}  // namespace kbundle::builder
