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
  const double seconds = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
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
  return kExitOk;
}

}  // namespace kbundle::builder
