// A CPU is several targets: every level that it can run is in a bundle, so every one is tested. A
// level without variants is no error where another has some.
#include "builder/conformance/conformance.h"

#include <algorithm>
#include <chrono>

#include "builder/conformance/target.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using Clock = std::chrono::steady_clock;

// One, or of a CPU every level that it runs: all of them are in a bundle.
std::vector<std::string> TargetsOf(const std::string& name) {
  if (name != "host") return {name};
  std::vector<std::string> levels;
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    const auto target = Target::Parse(level);
    if (target.ok() && target->Fit(HostDevice()) > 0) levels.emplace_back(level);
  }
  return levels;
}

}  // namespace

int ConformanceReport::failed() const {
  return static_cast<int>(std::count_if(variants.begin(), variants.end(),
                                        [](const auto& one) { return !one.right(); }));
}

Result<ConformanceReport> RunConformance(const ConformanceOptions& options, TuneReporter& reporter,
                                         const std::atomic<bool>& cancel) {
  const auto start = Clock::now();
  ConformanceReport report;
  report.seed = options.reference.seed;
  std::set<std::string> files;
  Status nothing;
  for (const std::string& name : TargetsOf(options.space.target)) {
    ConformanceTarget target(options, name, &reporter, &cancel);
    Status status = target.Run();
    if (status.code() == StatusCode::kNotFound) {
      nothing = std::move(status);
      continue;
    }
    KB_RETURN_IF_ERROR(std::move(status));
    report.device = target.device();
    for (const VariantOutcome& outcome : target.outcomes()) {
      const bool asked = !outcome.right() || outcome.problems > 0;
      if (asked) report.variants.push_back(outcome);
    }
    for (const std::string& warning : target.warnings()) report.warnings.push_back(warning);
    if (options.whole() || options.note_only) KB_RETURN_IF_ERROR(target.WriteRanOn(&files));
  }
  if (report.variants.empty() && !nothing.ok()) return nothing;
  report.files.assign(files.begin(), files.end());
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace kbundle::builder
