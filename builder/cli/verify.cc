// Bytes first, since nothing else is worth saying of a damaged file. Then coverage as a user would
// meet it: select and plan every listed problem for the target, without the portable variant, and
// plan all that selection lists, because a policy or a failed load may ask for any of them.
#include "builder/cli/verify.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "builder/library/library.h"
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

void CheckProblem(const Parts& library, const Problem& problem, const Device& device,
                  const SelectOptions& options, Coverage* coverage) {
  ++coverage->problems;
  const auto check = [&](const Parts::BundlePtr& part, const Problem& of_part) -> Status {
    KB_ASSIGN_OR_RETURN(const auto selected, Select(*part, of_part, device, options));
    if (of_part.AllResultsEmpty()) return Status();  // nothing is launched
    // Any of them may be asked for, by a policy or because one before it does not load.
    for (const Selected& one : selected) {
      const Status plan = CheckPlan(*part, of_part, device, one.variant, options.alignment);
      if (plan.ok()) continue;
      coverage->gaps.push_back({problem.op_name, problem.ToString(), plan.message(), "broken"});
    }
    return Status();
  };
  const Status served = library.Serve(problem, device, options, check);
  if (!served.ok())
    coverage->gaps.push_back({problem.op_name, problem.ToString(), served.message()});
}

// What there is besides, and what to install.
std::string NoCode(const Parts& library, const Device& device) {
  const std::string there = IsDivided(library) ? library.WhatThereIs(device.kind, &device) : "";
  return "no variant for " + device.ToString() + there;
}

Result<Coverage> CheckTarget(const Parts& library, const Device& device, bool strict) {
  const SelectOptions options = ExactOnly(strict);
  Coverage coverage;
  const auto* ops = IndexOf(library.first()).ops();
  for (uint32_t op = 0; ops && op < ops->size(); ++op) {
    const std::string name = ops->Get(op)->name()->str();
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ListedProblems(library.first(), op));
    if (problems.empty()) coverage.silent_ops.push_back(name);
    const auto has_code = [&](const auto& part) { return HasExactCode(*part, op, device); };
    if (std::none_of(library.all().begin(), library.all().end(), has_code)) {
      coverage.gaps.push_back({name, "any", NoCode(library, device)});
      continue;
    }
    for (const Problem& problem : problems) {
      CheckProblem(library, problem, device, options, &coverage);
    }
  }
  return coverage;
}

// The problems of a file instead of those that the bundle lists.
Result<Coverage> CheckFile(const Parts& library, const Device& device, bool strict,
                           const std::string& file) {
  KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ReadProblemFile(file, library.first()));
  const SelectOptions options = ExactOnly(strict);
  Coverage coverage;
  for (const Problem& problem : problems) {
    CheckProblem(library, problem, device, options, &coverage);
  }
  return coverage;
}

// Without a target, strict asks that conformance has run every variant somewhere.
void CheckRan(const Bundle& bundle, Coverage* coverage) {
  const fb::Index& index = IndexOf(bundle);
  for (uint32_t i = 0; index.variants() && i < index.variants()->size(); ++i) {
    if (!RanOn(bundle, i).empty()) continue;
    const std::string op = index.ops()->Get(index.variants()->Get(i)->op())->name()->str();
    coverage->gaps.push_back({op, bundle.VariantId(i), "never run"});
  }
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

uint64_t BytesOfAll(const Parts& library) {
  uint64_t bytes = 0;
  for (const auto& part : library.all()) bytes += part->file_size();
  return bytes;
}

std::string VerifyJson(const VerifyCommand& command, const Parts& library,
                       const Coverage& coverage) {
  JsonWriter json;
  json.BeginObject().Key("file").Text(command.file).Key("ok").Bool(coverage.gaps.empty());
  json.Key("content_id").Text(library.content_id()).Key("file_bytes").Unsigned(BytesOfAll(library));
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
  json.EndArray().Key("parts").BeginArray();
  for (const auto& part : library.all()) {
    json.BeginObject().Key("path").Text(part->path()).Key("content_id").Text(part->content_id());
    json.Key("file_bytes").Unsigned(part->file_size()).EndObject();
  }
  json.EndArray().Key("absent").BeginArray();
  for (const AbsentPart& part : library.absent()) {
    json.BeginObject().Key("target").Text(part.target.ToString());
    json.Key("how").Text(part.how).EndObject();
  }
  return json.EndArray().EndObject().text();
}

void PrintBytes(const Terminal& terminal, const std::string& file, const Bundle& bundle) {
  const fb::Index& index = IndexOf(bundle);
  terminal.Line(file + ": every byte is as written: " + Grouped(bundle.file_size()) + " bytes, " +
                Counted(index.ops() ? index.ops()->size() : 0, "op") + ", " +
                Counted(index.variants() ? index.variants()->size() : 0, "variant") + ", " +
                Counted(index.blobs() ? index.blobs()->size() : 0, "code object"));
}

void PrintVerifyText(const Terminal& terminal, const VerifyCommand& command, const Parts& library,
                     const Coverage& coverage) {
  for (const auto& part : library.all()) PrintBytes(terminal, part->path(), *part);
  for (const std::string& line : AbsentLines(library.absent())) terminal.Line("not here   " + line);
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
  std::shared_ptr<const Parts> library;
  Coverage coverage;
};

// Each file that is damaged is named.
Status VerifyBytes(const Parts& library) {
  Status first;
  for (const auto& part : library.all()) {
    Status status = part->VerifyAll();
    if (status.ok()) continue;
    first = first.ok() ? std::move(status)
                       : Status(first.code(), first.message() + "\n" + status.message());
  }
  const auto* ops = IndexOf(library.first()).ops();
  for (uint32_t op = 0; first.ok() && ops != nullptr && op < ops->size(); ++op)
    first = library.FindInterface(ops->Get(op)->name()->string_view()).status();  // all alike
  return first;
}

Result<Looked> LookAt(const VerifyCommand& command) {
  Device device;
  if (!command.target.empty()) {
    KB_ASSIGN_OR_RETURN(device, DeviceFromTargetName(command.target));
  }
  KB_ASSIGN_OR_RETURN(auto opened, OpenLibrary(command.file));
  const Parts& library = *opened;
  KB_RETURN_IF_ERROR(VerifyBytes(library));
  Result<Coverage> coverage = Coverage();
  if (!command.problems.empty()) {
    coverage = CheckFile(library, device, command.strict, command.problems);
  } else if (!command.target.empty()) {
    coverage = CheckTarget(library, device, command.strict);
  } else if (command.strict) {
    for (const auto& part : library.all()) CheckRan(*part, &*coverage);
  }
  if (!coverage.ok()) return coverage.status();
  for (const auto& part : library.all())
    if (command.strict) CheckRecords(*part, &*coverage);
  return Looked{std::move(opened), *std::move(coverage)};
}

}  // namespace

Result<VerifyCommand::Verdict> VerifyCommand::Look() const {
  KB_ASSIGN_OR_RETURN(const Looked looked, LookAt(*this));
  return Verdict{looked.coverage.gaps.empty(), VerifyJson(*this, *looked.library, looked.coverage)};
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
  terminal.json() ? terminal.Line(VerifyJson(*this, *looked->library, looked->coverage))
                  : PrintVerifyText(terminal, *this, *looked->library, looked->coverage);
  return looked->coverage.gaps.empty() ? kExitOk : kExitNo;
}

}  // namespace kbundle::builder
