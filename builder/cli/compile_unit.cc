// A unit is named by hand or by a plan, never by a bit of both: two sources of one fact could
// differ. Where it is kept is of this machine, so it never comes from a plan.
#include "builder/cli/compile_unit.h"

#include "builder/cli/build.h"

namespace kbundle::builder {

std::string CompileUnitCommand::Misuse() const {
  const bool selects = !wanted.label.empty() || !wanted.key.empty() || !inputs.empty();
  const bool builds = !options.paths.empty() || !options.targets.empty() ||
                      !options.providers.empty() || !options.problems.empty();
  if (plan.empty()) {
    if (number) return "--number is of a plan: --plan FILE";
    if (options.paths.empty()) return "PATH is required, or --plan FILE --number N";
    if (wanted.label.empty() && wanted.key.empty()) {
      return "--unit or --key says which code object of PATH; `kbundle build PATH --plan` lists "
             "them";
    }
  } else {
    if (!number) return "--number says which unit of the plan; the first is 0";
    if (selects || builds) {
      return "the plan says what PATH, --target, --provider, --problems, --unit, --key and --input "
             "would: leave them out";
    }
  }
  for (const std::string& input : inputs) {
    const size_t at = input.rfind('=');
    if (at == 0 || at == std::string::npos || input.size() - at < 9) {
      return "--input \"" + input + "\": NAME=SHA256, of which 8 digits are enough";
    }
  }
  return "";
}

int CompileUnitCommand::Run(const Terminal& terminal) const {
  if (const std::string wrong = Misuse(); !wrong.empty()) {
    return terminal.Usage("compile-unit", wrong);
  }
  if (const Status status = CheckNames(options); !status.ok()) {
    return terminal.Usage("compile-unit", status.message());
  }
  PlannedUnit unit = {options, wanted};
  for (const std::string& input : inputs) {
    const size_t at = input.rfind('=');
    unit.wanted.inputs.emplace_back(input.substr(0, at), input.substr(at + 1));
  }
  if (!plan.empty()) {
    Result<PlannedUnit> planned = ReadPlannedUnit(plan, static_cast<uint64_t>(*number));
    if (!planned.ok()) return terminal.Fail(planned.status());
    unit = std::move(*planned);
    unit.options.cache_dir = options.cache_dir;
    unit.options.shared_cache = options.shared_cache;
    if (!options.python.empty()) unit.options.python = options.python;
  }
  ProgressLine progress(terminal, /*notes_to_stderr=*/true);
  const Result<UnitReport> report = CompileOneUnit(unit.options, unit.wanted, progress);
  if (!report.ok()) return terminal.Fail(report.status(), progress.failures());
  if (terminal.json()) {
    terminal.Line(report->ToJson());
    return kExitOk;
  }
  terminal.Line(report->label + ": " +
                (report->compiled ? "compiled in " + Fixed(report->seconds, 1) + " s"
                                  : "in the cache already") +
                ", " + Grouped(report->bytes) + " bytes, key " + report->key);
  if (!report->refused.empty()) terminal.Note("note: no plan was made of it: " + report->refused);
  return kExitOk;
}

}  // namespace kbundle::builder
