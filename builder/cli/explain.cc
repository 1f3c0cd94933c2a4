// A choice is made by the loader's own Select and Explain, never by code of the builder: what is
// printed here is what a program on that device would get. What is left to do is to put words into
// a problem, and the reasons that matter to the reader before the many that do not.
#include "builder/cli/explain.h"

#include <algorithm>
#include <optional>

#include "builder/cli/print_launch.h"
#include "builder/library/library.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/describe.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

// "name=value" in two; no value when there is no "=".
std::pair<std::string, std::optional<std::string>> SplitPair(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {text, std::nullopt};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::string OperandNames(const fb::Op& op) {
  std::vector<std::string> names;
  for (uint32_t i = 0; op.operands() && i < op.operands()->size(); ++i) {
    names.push_back(op.operands()->Get(i)->name()->str());
  }
  return names.empty() ? "none" : Joined(names, ", ");
}

// Puts one --operand where the op wants it.
Status SetOperand(const fb::Op& op, const std::string& text, ProblemSpec& spec) {
  const auto [name, value] = SplitPair(text);
  if (!value) {
    return InvalidArgument("--operand \"" + text +
                           "\": a name, \"=\", a dtype and dims are wanted, as in x=bf16[4,2048]");
  }
  for (uint32_t i = 0; op.operands() && i < op.operands()->size(); ++i) {
    if (op.operands()->Get(i)->name()->string_view() != name) continue;
    if (spec.operands[i].present) {
      return InvalidArgument("--operand \"" + text + "\": " + name + " is given twice");
    }
    KB_ASSIGN_OR_RETURN(spec.operands[i], ParseTensorSpec(*value));
    return {};
  }
  return InvalidArgument("--operand \"" + text + "\": " + op.name()->str() + " has no operand \"" +
                         name + "\"; it has: " + OperandNames(op));
}

Result<ProblemSpec> MakeSpec(const fb::Op& op, const ExplainCommand& command) {
  ProblemSpec spec;
  spec.operands.resize(op.operands() ? op.operands()->size() : 0);
  for (TensorSpec& operand : spec.operands) operand.present = false;
  for (const std::string& text : command.operands) KB_RETURN_IF_ERROR(SetOperand(op, text, spec));
  for (const std::string& text : command.attributes) {
    const auto [name, value] = SplitPair(text);
    if (!value) {
      return InvalidArgument("--attr \"" + text +
                             "\": a name, \"=\" and a value are wanted, as in scale=0.125");
    }
    spec.attributes.emplace_back(name, ParseAttributeValue(*value));
  }
  return spec;
}

// Of use to the reader first: the chosen one, the legal ones, those whose conditions failed, and
// last the code for other targets or types.
int Interest(const Bundle& bundle, const Verdict& verdict, const Problem& problem,
             const Device& device, const Selected* chosen) {
  if (chosen != nullptr && chosen->variant == verdict.variant) return 0;
  if (verdict.legal) return 1;
  const fb::Index& index = IndexOf(bundle);
  const fb::Variant& variant = *index.variants()->Get(verdict.variant);
  const auto target = Target::Parse(index.targets()->Get(variant.target())->name()->string_view());
  const bool runs = target.ok() && target->Fit(device) > 0;
  return !runs ? 4 : variant.types() == problem.types ? 2 : 3;
}

// A line of the list of candidates.
struct Candidate {
  int interest;
  std::string mark, id, reason;
};

// served: null where no part does.
void AddCandidates(const Terminal& terminal, const Bundle& bundle, const Problem& problem,
                   const Device& device, const SelectOptions& options, const Served* served,
                   std::vector<Candidate>* candidates) {
  const bool serves = served != nullptr && served->bundle.get() == &bundle;
  const Selected* chosen = serves ? &served->selected : nullptr;
  for (const Verdict& verdict : Explain(bundle, problem, device, options)) {
    Candidate one{Interest(bundle, verdict, problem, device, chosen), "legal",
                  bundle.VariantId(verdict.variant), verdict.reason};
    if (chosen != nullptr && chosen->variant == verdict.variant)
      one.mark = terminal.Paint(Terminal::Style::kGood, "chosen");
    else if (!verdict.legal)
      one.mark = terminal.Paint(Terminal::Style::kFaint, "no");
    else if (served != nullptr && !serves)
      one.reason = "legal, but " + served->bundle->path() + " goes first";
    candidates->push_back(std::move(one));
  }
}

// Those of the part that serves first.
void PrintCandidates(const Terminal& terminal, const Parts& library, const Problem& problem,
                     const Device& device, const SelectOptions& options, const Served* served) {
  std::vector<Candidate> candidates;
  for (const bool serving : {true, false}) {
    for (size_t i = 0; i < library.all().size(); ++i) {
      const Parts::BundlePtr& part = library.all()[i];
      const Result<Problem> of_part = library.ProblemIn(i, problem);
      if (!of_part.ok() || (served != nullptr && served->bundle == part) != serving) continue;
      AddCandidates(terminal, *part, *of_part, device, options, served, &candidates);
    }
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.interest < b.interest;
  };
  std::stable_sort(candidates.begin(), candidates.end(), before);
  Table table({"", "VARIANT", "REASON"}, "  ");
  for (Candidate& one : candidates)
    table.Row({std::move(one.mark), std::move(one.id), std::move(one.reason)});
  table.Print(terminal);
}

std::string Times(const fb::TunedTime& time) {
  char text[96];
  std::snprintf(text, sizeof text, "%.5g us (%.5g to %.5g)", time.median(), time.low(),
                time.high());
  return text;
}

// The measurements behind a tuned choice.
void PrintEvidence(const Terminal& terminal, const Bundle& bundle, const Selected& chosen) {
  if (chosen.tuned < 0) return;
  const fb::Index& index = IndexOf(bundle);
  const fb::Tuned& row = *index.tuned()->Get(static_cast<uint32_t>(chosen.tuned));
  const fb::Evidence& evidence = *index.evidence()->Get(row.evidence());
  const auto text = [](const flatbuffers::String* t) { return t == nullptr ? "" : t->str(); };
  terminal.Line("tuned      " + text(evidence.problem()) + " on " +
                index.tuned_devices()->Get(row.device())->str());
  terminal.Line("verdict    " + text(evidence.verdict()) + ": " + text(evidence.reason()));
  terminal.Line("");
  Table table({"", "CANDIDATE", "TIME", "VERSUS DEFAULT"}, "  ");
  for (uint32_t i = 0; evidence.times() != nullptr && i < evidence.times()->size(); ++i) {
    const fb::TunedTime& time = *evidence.times()->Get(i);
    const auto has = [&time](fb::TunedFlags flag) {
      return (time.flags() & static_cast<uint64_t>(flag)) != 0;
    };
    const bool failed = has(fb::TunedFlags::Failed), dropped = has(fb::TunedFlags::Dropped);
    const char* mark = time.variant() == row.winner()      ? "winner"
                       : time.variant() == evidence.base() ? "default"
                       : dropped                           ? "dropped"
                                                           : "";
    char versus[64];
    std::snprintf(versus, sizeof versus, "%.3f +- %.3f", time.ratio(), time.band());
    table.Row({mark, bundle.VariantId(time.variant()), failed ? "failed" : Times(time),
               failed ? "" : versus});
  }
  table.Print(terminal);
}

void PrintChosen(const Terminal& terminal, const Served& served, bool divided, int64_t alignment) {
  const Bundle& bundle = *served.bundle;
  const Selected& chosen = served.selected;
  const auto bytes = WorkspaceBytes(bundle, served.problem, chosen.variant, alignment);
  const auto ran_on = RanOn(bundle, chosen.variant);
  terminal.Line("chosen     " +
                terminal.Paint(Terminal::Style::kBold, bundle.VariantId(chosen.variant)) + " (" +
                ChoiceName(chosen.choice) + ")");
  if (divided) terminal.Line("part       " + bundle.path());
  terminal.Line("workspace  " + (bytes.ok() ? Grouped(static_cast<uint64_t>(*bytes)) + " bytes"
                                            : bytes.status().message()));
  terminal.Line("ran on     " + (ran_on.empty() ? "never run" : Joined(ran_on, ", ")));
}

void PrintExplanation(const Terminal& terminal, const Parts& library, const Problem& problem,
                      const Device& device, const SelectOptions& options,
                      const std::string& sm_count) {
  const Result<Served> served = SelectFirstLaunchable(library, problem, device, options);
  terminal.Line("problem    " + problem.ToString());
  terminal.Line("target     " + device.ToString());
  if (served.ok())
    PrintChosen(terminal, *served, IsDivided(library), options.alignment);
  else
    terminal.Line("chosen     " + terminal.Paint(Terminal::Style::kBad, "none"));
  for (const std::string& line : AbsentLines(library.Missed(device)))
    terminal.Line("not here   " + line);
  if (served.ok()) PrintEvidence(terminal, *served->bundle, served->selected);
  PrintLaunch(terminal, ExplainJson(library, problem, device, options), sm_count);
  terminal.Line("");
  PrintCandidates(terminal, library, problem, device, options, served.ok() ? &*served : nullptr);
}

}  // namespace

int ExplainCommand::Run(const Terminal& terminal) const {
  Result<Device> device =
      target.empty() ? Result<Device>(HostDevice()) : DeviceFromTargetName(target);
  if (!device.ok()) return terminal.Usage("explain", "--target: " + device.status().message());
  const bool gpu = device->kind == Device::Kind::kCuda;
  if (sm_count > 0 && !gpu)
    return terminal.Usage("explain", "--sm-count: " + device->ToString() + " is no GPU");
  if (sm_count > 0) device->sm_count = sm_count;
  const auto opened = OpenLibrary(file);
  if (!opened.ok()) return terminal.Fail(opened.status());
  const Parts& library = **opened;
  const auto number = library.first().FindOp(op);
  if (!number.ok()) return terminal.Fail(number.status());
  const auto spec = MakeSpec(OpOf(library.first(), *number), *this);
  if (!spec.ok()) return terminal.Usage("explain", spec.status().message());
  const auto problem = library.MakeProblem(op, *spec);
  if (!problem.ok()) return terminal.Fail(problem.status());

  SelectOptions options;
  options.alignment = alignment;
  options.policy.strict = strict;
  options.modes = {.deterministic = deterministic, .batch_invariant = batch_invariant};
  const Result<Served> chosen = SelectFirstLaunchable(library, *problem, *device, options);
  if (terminal.json()) {
    terminal.Line(ExplainJson(library, *problem, *device, options));
  } else {
    const char* source = !gpu ? "" : sm_count > 0 ? "given" : "as on an H200 (--sm-count)";
    PrintExplanation(terminal, library, *problem, *device, options, source);
  }
  if (chosen.ok()) return kExitOk;
  terminal.Error(chosen.status().message());
  return kExitNo;
}

}  // namespace kbundle::builder
