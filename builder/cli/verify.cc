// Bytes first, since nothing else is worth saying of a damaged file. Then coverage as a user would
// meet it: select and plan every listed problem for the target, without the portable variant, and
// plan all that selection lists, because a policy or a failed load may ask for any of them.
#include "builder/cli/verify.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "builder/pack/provenance.h"
#include "builder/problem/file.h"
#include "builder/problem/listed.h"
#include "builder/tools/served_gpus.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/check_plan.h"
#include "kbundle/describe.h"
#include "kbundle/json.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

// Something that a user of the target would miss. what: "missing", "broken" (a variant that would
// be chosen and cannot be launched), "stale".
struct Gap {
  std::string op, problem, reason;
  const char* what = "missing";
};

struct Coverage {
  int problems = 0;  // looked at
  std::vector<Gap> gaps;
  std::vector<std::string> silent_ops;  // list no problem, so only the presence of code is known
};

// Exact: code made for this device or its family; a portable variant is not.
bool HasExactCode(const Bundle& bundle, uint32_t op, const Device& device) {
  const fb::Index& index = IndexOf(bundle);
  for (uint32_t i = 0; index.variants() && i < index.variants()->size(); ++i) {
    const fb::Variant& variant = *index.variants()->Get(i);
    if (variant.op() != op) continue;
    const auto target =
        Target::Parse(index.targets()->Get(variant.target())->name()->string_view());
    if (target.ok() && target->kind != TargetKind::kCudaPortable && target->Fit(device) > 0)
      return true;
  }
  return false;
}

SelectOptions ExactOnly(bool strict) {
  SelectOptions options;
  options.policy.allow_portable = false;
  options.policy.strict = strict;
  return options;
}

void CheckProblem(const Bundle& bundle, const Problem& problem, const Device& device,
                  const SelectOptions& options, Coverage* coverage) {
  ++coverage->problems;
  const auto selected = Select(bundle, problem, device, options);
  if (!selected.ok()) {
    coverage->gaps.push_back({problem.op_name, problem.ToString(), selected.status().message()});
    return;
  }
  if (problem.AllResultsEmpty()) return;  // nothing is launched
  // Any of them may be asked for, by a policy or because one before it does not load.
  for (const Selected& one : *selected) {
    const Status plan = CheckPlan(bundle, problem, device, one.variant, options.alignment);
    if (plan.ok()) continue;
    coverage->gaps.push_back({problem.op_name, problem.ToString(), plan.message(), "broken"});
  }
}

Result<Coverage> CheckTarget(const Bundle& bundle, const Device& device, bool strict) {
  const SelectOptions options = ExactOnly(strict);
  Coverage coverage;
  const auto* ops = IndexOf(bundle).ops();
  for (uint32_t op = 0; ops && op < ops->size(); ++op) {
    const std::string name = ops->Get(op)->name()->str();
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ListedProblems(bundle, op));
    if (problems.empty()) coverage.silent_ops.push_back(name);
    if (!HasExactCode(bundle, op, device)) {
      coverage.gaps.push_back({name, "any", "no variant for " + device.ToString()});
      continue;
    }
    for (const Problem& problem : problems) {
      CheckProblem(bundle, problem, device, options, &coverage);
    }
  }
  return coverage;
}

// The problems of a file instead of those that the bundle lists.
Result<Coverage> CheckFile(const Bundle& bundle, const Device& device, bool strict,
                           const std::string& file) {
  KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ReadProblemFile(file, bundle));
  const SelectOptions options = ExactOnly(strict);
  Coverage coverage;
  for (const Problem& problem : problems) {
    CheckProblem(bundle, problem, device, options, &coverage);
  }
  return coverage;
}

// Without a target, strict asks that conformance has run every variant somewhere.
Coverage CheckRan(const Bundle& bundle) {
  Coverage coverage;
  const fb::Index& index = IndexOf(bundle);
  for (uint32_t i = 0; index.variants() && i < index.variants()->size(); ++i) {
    if (!RanOn(bundle, i).empty()) continue;
    const std::string op = index.ops()->Get(index.variants()->Get(i)->op())->name()->str();
    coverage.gaps.push_back({op, bundle.VariantId(i), "never run"});
  }
  return coverage;
}

// Strict: a build that left tuning records out has winners that are not in use.
void CheckRecords(const Bundle& bundle, Coverage* coverage) {
  const auto* provenance = IndexOf(bundle).provenance();
  for (uint32_t i = 0; provenance != nullptr && i < provenance->size(); ++i) {
    const fb::KeyValue& row = *provenance->Get(i);
    if (row.key()->string_view() != kStaleRecords) continue;
    coverage->gaps.push_back(
        {"", "tuning",
         row.value()->str() +
             " tuning records were left out when it was built: their "
             "code is another by now; `kbundle tune --revalidate`, then build again",
         "stale"});
  }
}

std::string VerifyJson(const VerifyCommand& command, const Bundle& bundle,
                       const Coverage& coverage) {
  JsonWriter json;
  json.BeginObject().Key("file").Text(command.file).Key("ok").Bool(coverage.gaps.empty());
  json.Key("content_id").Text(bundle.content_id()).Key("file_bytes").Unsigned(bundle.file_size());
  json.Key("target");
  command.target.empty() ? json.Null() : json.Text(command.target);
  json.Key("strict").Bool(command.strict).Key("problems_checked").Int(coverage.problems);
  json.Key("missing").BeginArray();
  for (const Gap& gap : coverage.gaps) {
    json.BeginObject().Key("op").Text(gap.op).Key("problem").Text(gap.problem);
    json.Key("reason").Text(gap.reason).Key("what").Text(gap.what).EndObject();
  }
  json.EndArray().Key("ops_without_problems").BeginArray();
  for (const std::string& op : coverage.silent_ops) json.Text(op);
  return json.EndArray().EndObject().text();
}

void PrintVerifyText(const Terminal& terminal, const VerifyCommand& command, const Bundle& bundle,
                     const Coverage& coverage) {
  const fb::Index& index = IndexOf(bundle);
  terminal.Line(command.file + ": every byte is as written: " + Grouped(bundle.file_size()) +
                " bytes, " + Counted(index.ops() ? index.ops()->size() : 0, "op") + ", " +
                Counted(index.variants() ? index.variants()->size() : 0, "variant") + ", " +
                Counted(index.blobs() ? index.blobs()->size() : 0, "code object"));
  for (const std::string& op : coverage.silent_ops) {
    terminal.Line("note: " + op + " lists no problems; only the presence of code is checked");
  }
  for (const Gap& gap : coverage.gaps) {
    terminal.Line(terminal.Paint(Terminal::Style::kBad, gap.what) + "  " + gap.op + "  " +
                  gap.problem + "\n         " + gap.reason);
  }
  if (command.strict && !coverage.gaps.empty()) {
    terminal.Line("to run what never ran: kbundle test PATH --target " +
                  (command.target.empty() ? "TARGET" : command.target) +
                  " on such a device; then build again");
  }
  if (command.target.empty()) return;
  const auto count = [&](std::string_view what) {
    return std::to_string(std::count_if(coverage.gaps.begin(), coverage.gaps.end(),
                                        [&](const Gap& gap) { return gap.what == what; }));
  };
  terminal.Line(command.target + ": " + std::to_string(coverage.problems) + " problems checked, " +
                (coverage.gaps.empty()
                     ? "each has an exact variant that can be launched"
                     : count("missing") + " without an exact variant, " + count("broken") +
                           " variants that cannot be launched"));
  const auto device = DeviceFromTargetName(command.target);
  if (device.ok() && IsServedBySm90a(*device))
    terminal.Line(std::string("note: ") + kServedBySm90a);
}

struct Looked {
  std::shared_ptr<const Bundle> bundle;
  Coverage coverage;
};

Result<Looked> LookAt(const VerifyCommand& command) {
  Device device;
  if (!command.target.empty()) {
    KB_ASSIGN_OR_RETURN(device, DeviceFromTargetName(command.target));
  }
  KB_ASSIGN_OR_RETURN(auto opened, Bundle::Open(command.file));
  const Bundle& bundle = *opened;
  KB_RETURN_IF_ERROR(bundle.VerifyAll());
  Result<Coverage> coverage = Coverage();
  if (!command.problems.empty()) {
    coverage = CheckFile(bundle, device, command.strict, command.problems);
  } else if (!command.target.empty()) {
    coverage = CheckTarget(bundle, device, command.strict);
  } else if (command.strict) {
    coverage = CheckRan(bundle);
  }
  if (!coverage.ok()) return coverage.status();
  if (command.strict) CheckRecords(bundle, &*coverage);
  return Looked{std::move(opened), *std::move(coverage)};
}

}  // namespace

Result<VerifyCommand::Verdict> VerifyCommand::Look() const {
  KB_ASSIGN_OR_RETURN(const Looked looked, LookAt(*this));
  return Verdict{looked.coverage.gaps.empty(), VerifyJson(*this, *looked.bundle, looked.coverage)};
}

int VerifyCommand::Run(const Terminal& terminal) const {
  if (!problems.empty() && target.empty()) {
    return terminal.Usage("verify", "--problems asks about a target: add --target sm_90a");
  }
  if (!target.empty()) {
    const auto parsed = DeviceFromTargetName(target);
    if (!parsed.ok()) return terminal.Usage("verify", "--target: " + parsed.status().message());
  }
  const Result<Looked> looked = LookAt(*this);
  if (!looked.ok()) return terminal.Fail(looked.status());
  terminal.json() ? terminal.Line(VerifyJson(*this, *looked->bundle, looked->coverage))
                  : PrintVerifyText(terminal, *this, *looked->bundle, looked->coverage);
  return looked->coverage.gaps.empty() ? kExitOk : kExitNo;
}

}  // namespace kbundle::builder
