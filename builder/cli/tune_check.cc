// Missing, stale and refused records fail the check, for each has a cure by `kbundle tune`. A
// family without any record, beside some that have them, does not: its author chose the manifest's
// order.
#include "builder/cli/tune_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "builder/support/json_text.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Json JsonOfCheck(const std::vector<StaleRecord>& records) {
  Json rows = Json::array();
  for (const StaleRecord& one : records) rows.push_back({{"record", one.record}, {"why", one.why}});
  return rows;
}

Json JsonOfCheck(const std::vector<TargetCheck>& checks, bool ok) {
  Json targets = Json::array();
  for (const TargetCheck& check : checks) {
    targets.push_back({{"target", check.target},
                       {"ok", check.ok()},
                       {"problems", check.problems},
                       {"records", check.records},
                       {"missing", check.missing},
                       {"untuned", check.untuned},
                       {"stale", JsonOfCheck(check.stale)},
                       {"refused", JsonOfCheck(check.refused)},
                       {"notes", check.notes}});
  }
  return {{"ok", ok}, {"targets", std::move(targets)}};
}

void PrintRecords(const Terminal& terminal, const char* word,
                  const std::vector<StaleRecord>& records) {
  for (const StaleRecord& one : records) {
    terminal.Line(terminal.Paint(Terminal::Style::kBad, word) + "  " + one.record);
    for (const std::string& why : one.why) terminal.Line("         " + why);
  }
}

void PrintCheck(const Terminal& terminal, const TargetCheck& check) {
  for (const std::string& problem : check.missing) {
    terminal.Line(terminal.Paint(Terminal::Style::kBad, "missing") + "  " + problem);
  }
  PrintRecords(terminal, "stale  ", check.stale);
  PrintRecords(terminal, "refused", check.refused);
  for (const auto& [family, problems] : check.untuned) {
    terminal.Line("untuned  " + family + ": no record at all; its " + std::to_string(problems) +
                  " problems with a choice take the manifest's order and are left out here");
  }
  for (const std::string& note : check.notes) terminal.Line("note: " + note);
  terminal.Line(terminal.Paint(Terminal::Style::kBold, check.target) + ": " +
                std::to_string(check.problems) + " problems, " + std::to_string(check.records) +
                " records, " + std::to_string(check.missing.size()) + " missing, " +
                std::to_string(check.stale.size()) + " stale, " +
                std::to_string(check.refused.size()) + " refused");
}

}  // namespace

int TuneCheckCommand::Run(const Terminal& terminal) const {
  if (!options.target.empty() && options.target != "host") {
    const auto parsed = DeviceFromTargetName(options.target);
    if (!parsed.ok()) return terminal.Usage("tune", "--target: " + parsed.status().message());
  }
  const Result<std::vector<TargetCheck>> checks = CheckTuning(options);
  if (!checks.ok()) return terminal.Fail(checks.status());
  const bool ok =
      std::all_of(checks->begin(), checks->end(), [](const auto& check) { return check.ok(); });
  if (terminal.json()) {
    terminal.Line(JsonText(JsonOfCheck(*checks, ok)));
  } else {
    for (const TargetCheck& check : *checks) PrintCheck(terminal, check);
    if (!ok) {
      terminal.Line(
          "to tune what is missing: kbundle tune PATH --target TARGET; for stale records whose "
          "winner has other code by now, --revalidate first");
    }
  }
  return ok ? kExitOk : kExitNo;
}

}  // namespace kbundle::builder
