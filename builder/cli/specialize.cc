// One record has the times of both variants, measured by turns; two tables of two days would
// compare two days. So a gain is printed only where the record of a problem knows what was chosen
// before.
#include "builder/cli/specialize.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "builder/cli/verify.h"
#include "builder/device/visible.h"
#include "builder/support/files.h"
#include "builder/support/json_text.h"
#include "builder/support/process.h"
#include "builder/support/temporary_folder.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

// "warp_row[T=bf16]@sm_90a (nearest), 12.3 us".
std::string Line(const ModelChoice& choice, const std::optional<double>& us) {
  if (choice.variant.empty()) return "none: " + choice.how;
  const std::string local = choice.variant.substr(choice.variant.find('/') + 1);
  return fmt::format("{} ({}){}", local, choice.how, us ? fmt::format(", {:.2f} us", *us) : "");
}

std::optional<double> TimeOf(const ModelChoice& record, const std::string& variant) {
  const auto found = record.us.find(variant);
  if (found == record.us.end()) return std::nullopt;
  return found->second;
}

void PrintSpecialized(const Terminal& terminal, const std::vector<ModelChoice>& before,
                      const std::vector<ModelChoice>& after) {
  int changed = 0, compared = 0;
  double logs = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const auto old_us = TimeOf(after[i], before[i].variant);
    const auto new_us = TimeOf(after[i], after[i].variant);
    std::string gain;
    if (old_us && new_us) {
      logs += std::log(*old_us / *new_us);
      ++compared;
      if (before[i].variant != after[i].variant) {
        gain = fmt::format(", {:.2f} times faster", *old_us / *new_us);
      }
    }
    changed += before[i].variant != after[i].variant;
    terminal.Line(terminal.Paint(Terminal::Style::kBold, after[i].problem));
    terminal.Line("  before  " + Line(before[i], old_us));
    terminal.Line("  after   " + Line(after[i], new_us) + gain);
  }
  terminal.Line(
      fmt::format("{}, another variant for {}; of {} with both times {:.3f} times faster "
                  "in the geometric mean",
                  Counted(after.size(), "problem"), changed, compared,
                  compared > 0 ? std::exp(logs / compared) : 1.0));
}

// Calls use(verify) with what asks of the families that the model uses alone: what others have is
// not in this bundle.
template <typename Use>
int VerifyStrictly(const Terminal& terminal, const SpecializeOptions& asked,
                   const std::string& problems, const Use& use) {
  const Result<TemporaryFolder> folder = TemporaryFolder::Make();
  if (!folder.ok()) return terminal.Fail(folder.status());
  VerifyCommand verify;
  verify.file = asked.output;
  verify.target = asked.target;
  verify.problems = folder->path() + "/problems.jsonl";
  verify.strict = true;
  const Status written = PublishFile(verify.problems, problems, Durability::kCrashOnly);
  return written.ok() ? use(verify) : terminal.Fail(written);
}

std::string BuildCommandOf(const SpecializeOptions& asked, const Specialized& done) {
  std::vector<std::string> words = {"kbundle", "build"};
  words.insert(words.end(), done.manifests.begin(), done.manifests.end());
  words.insert(words.end(),
               {"--problems", asked.model, "--target", asked.target, "-o", asked.output});
  if (asked.lean) words.emplace_back("--lean");
  return ShellCommand(words);
}

nlohmann::json ToJson(const ModelChoice& choice, const std::optional<double>& us) {
  nlohmann::json json = {{"variant", nullptr}, {"how", choice.how}, {"us", nullptr}};
  if (!choice.variant.empty()) json["variant"] = choice.variant;
  if (us) json["us"] = *us;
  return json;
}

nlohmann::json ToJson(const Specialized& done, const SpecializeOptions& asked,
                      const VerifyCommand::Verdict& verdict) {
  nlohmann::json json = {{"ok", verdict.ok},
                         {"output", asked.output},
                         {"problems", nlohmann::json::array()},
                         {"written", done.written},
                         {"build", BuildCommandOf(asked, done)},
                         {"verify", nlohmann::json::parse(verdict.json)}};
  for (size_t i = 0; i < done.after.size(); ++i) {
    const ModelChoice &before = done.before[i], &after = done.after[i];
    json["problems"].push_back({{"problem", after.problem},
                                {"before", ToJson(before, TimeOf(after, before.variant))},
                                {"after", ToJson(after, TimeOf(after, after.variant))}});
  }
  return json;
}

std::string Advice(const SpecializeOptions& asked, const Specialized& done) {
  return fmt::format(
      "commit {}; the same bytes without a GPU: {}",
      done.written.empty() ? "nothing new" : fmt::to_string(fmt::join(done.written, ", ")),
      BuildCommandOf(asked, done));
}

}  // namespace

int SpecializeCommand::Run(const Terminal& terminal, const std::atomic<bool>& cancel) const {
  const auto named = DeviceFromTargetName(options.target);
  if (!named.ok()) return terminal.Usage("specialize", "--target: " + named.status().message());
  SpecializeOptions asked = options;
  if (asked.paths.empty()) asked.paths = {"kernels"};
  if (!device.empty()) {
    if (const std::string wrong = MisspelledGpus(device); !wrong.empty()) {
      return terminal.Usage("specialize", "--device " + wrong);
    }
    const Result<int> gpus = ShowGpus(device);
    if (!gpus.ok()) return terminal.Fail(gpus.status());
    asked.gpus = *gpus;
  }
  ProgressLine progress(terminal, /*notes_to_stderr=*/true);
  const Result<Specialized> done = Specialize(asked, progress, cancel);
  progress.Clear();
  if (!done.ok()) return terminal.Fail(done.status(), progress.failures());
  const int code =
      VerifyStrictly(terminal, asked, done->problems, [&](const VerifyCommand& verify) {
        if (!terminal.json()) {
          PrintSpecialized(terminal, done->before, done->after);
          const int verified = verify.Run(terminal);
          terminal.Line(Advice(asked, *done));
          return verified;
        }
        const Result<VerifyCommand::Verdict> verdict = verify.Look();
        if (!verdict.ok()) return terminal.Fail(verdict.status());
        terminal.Line(JsonText(ToJson(*done, asked, *verdict)));
        return verdict->ok ? kExitOk : kExitNo;
      });
  if (code == kExitOk) std::filesystem::remove(done->kept);
  return code;
}

}  // namespace kbundle::builder
