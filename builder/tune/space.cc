// Two numberings meet here: variants and units of all the work, which candidates are named by, and
// those of the part that is compiled or packed, which has fewer. OnlyOf makes the part; what is
// learnt of it (failures, fingerprints, digests) is kept by the numbers of the whole.
#include "builder/tune/space.h"

#include <fmt/format.h>

#include <algorithm>

#include "builder/compile/check_variants.h"
#include "builder/compile/fingerprint.h"
#include "builder/compile/keep_variants.h"
#include "builder/compile/learned.h"
#include "builder/manifest/manifest.h"
#include "builder/pack/outline.h"
#include "builder/pack/pack.h"
#include "builder/pipeline/compile_all.h"
#include "builder/problem/add.h"
#include "builder/problem/json.h"
#include "builder/problem/listed.h"
#include "builder/provider/provider.h"
#include "builder/support/files.h"
#include "builder/support/process.h"
#include "kbundle/nearest.h"
#include "kbundle/select.h"

namespace kbundle::builder {
namespace {

const Template& TemplateOf(const Work& work, const VariantUse& use) {
  return work.ops[use.op].op->templates[use.template_index];
}

// The units that hold its code.
std::set<uint32_t> UnitsOf(const VariantUse& use) {
  std::set<uint32_t> units(use.units.begin(), use.units.end());
  units.erase(kNoUnit);
  return units;
}

}  // namespace

Result<std::unique_ptr<TuneSpace>> TuneSpace::Open(const SpaceOptions& options) {
  std::unique_ptr<TuneSpace> space(new TuneSpace);
  space->options_ = options;
  KB_RETURN_IF_ERROR(space->ReadFamilies(options));
  KB_ASSIGN_OR_RETURN(space->device_, DeviceFromTargetName(options.target));
  KB_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Make());
  space->folder_ = std::make_unique<TemporaryFolder>(std::move(folder));
  KB_ASSIGN_OR_RETURN(ObjectStore store, ObjectStore::Open(options.cache_dir));
  if (Status refused = store.refusal(); !refused.ok()) {
    return std::move(refused).Annotate(
        "tuning passes code through the cache, which cannot be written; --cache names another");
  }
  space->store_ = std::make_unique<ObjectStore>(std::move(store));
  space->code_ = std::make_unique<CandidateCode>(&space->context_, space->store_.get(),
                                                 options.jobs, options.python);
  KB_RETURN_IF_ERROR(space->PackOutline());
  if (!options.add.empty()) KB_RETURN_IF_ERROR(space->AddFile());
  return space;
}

std::string TuneSpace::LabelOf(uint32_t number) const {
  const VariantUse& use = work_.variants[number];
  const Template& variant = TemplateOf(work_, use);
  return VariantLabel(*work_.ops[use.op].op, variant, variant.points[use.point],
                      work_.targets[use.target]);
}

Status TuneSpace::ReadFamilies(const SpaceOptions& options) {
  KB_ASSIGN_OR_RETURN(const std::vector<std::string> manifests, FindManifests(options.paths));
  for (const std::string& manifest : manifests) {
    KB_ASSIGN_OR_RETURN(Family family, ReadManifest(manifest));
    families_.push_back(std::move(family));
  }
  return PlanFamilies();
}

Status TuneSpace::PlanFamilies() {
  KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(options_.target));
  KB_ASSIGN_OR_RETURN(work_, PlanWork(families_, {target}));
  use_of_.clear();
  for (uint32_t i = 0; i < work_.variants.size(); ++i) use_of_[LabelOf(i)] = i;
  if (!work_.variants.empty()) return Status();
  return NotFound(
      fmt::format("no variant of these manifests is for {}; nothing to measure", options_.target));
}

Status TuneSpace::PackOutline() {
  KB_ASSIGN_OR_RETURN(outline_,
                      OutlineBundle(work_, *store_, "outline", folder_->path() + "/outline.kb"));
  return Status();
}

Status TuneSpace::AddFile() {
  KB_ASSIGN_OR_RETURN(passed_over_, AddProblems(options_.add, *outline_, &families_));
  for (Family& family : families_) {
    for (Op& op : family.ops) SetProblemPoints(&op);
  }
  KB_RETURN_IF_ERROR(PlanFamilies());
  return PackOutline();
}

Result<std::vector<SpaceProblem>> TuneSpace::ListedProblems() const {
  return ProblemsListedBy(*outline_);
}

// Bundles do not hold them, so that they become those of an outline of their own.
Result<std::vector<SpaceProblem>> TuneSpace::HeldOutProblems() const {
  Work work = work_;
  std::vector<Op> ops;
  for (const Work::OpRef& row : work_.ops) {
    ops.push_back(*row.op);
    ops.back().problems = row.op->held_out;
  }
  for (size_t i = 0; i < ops.size(); ++i) work.ops[i].op = &ops[i];
  KB_ASSIGN_OR_RETURN(const auto bundle,
                      OutlineBundle(work, *store_, "held_out", folder_->path() + "/held_out.kb"));
  return ProblemsListedBy(*bundle);
}

Result<std::vector<SpaceProblem>> TuneSpace::ProblemsListedBy(const Bundle& bundle) const {
  std::vector<SpaceProblem> problems;
  std::vector<std::string> names;
  for (uint32_t op = 0; op < work_.ops.size(); ++op) {
    const std::string& name = work_.ops[op].op->name;
    names.push_back(name);
    if (!options_.op.empty() && name != options_.op) continue;
    KB_ASSIGN_OR_RETURN(const uint32_t number, bundle.FindOp(name));
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> listed, builder::ListedProblems(bundle, number));
    for (const Problem& problem : listed) {
      KB_ASSIGN_OR_RETURN(SpaceProblem made, MakeProblem(problem));
      problems.push_back(std::move(made));
    }
  }
  if (!options_.op.empty() && std::find(names.begin(), names.end(), options_.op) == names.end()) {
    return InvalidArgument(
        fmt::format("--op: no op '{}'{}", options_.op, DidYouMean(options_.op, names)));
  }
  return problems;
}

Result<SpaceProblem> TuneSpace::MakeProblem(const Problem& problem) const {
  SpaceProblem made;
  made.problem = problem;
  for (const Work::OpRef& op : work_.ops) {
    if (op.op->name == problem.op_name) made.family = op.family;
  }
  const auto selected = Select(*outline_, problem, device_);
  if (!selected.ok()) {
    if (selected.status().code() == StatusCode::kNotFound) return made;  // nothing to choose from
    return selected.status();
  }
  for (const Selected& one : *selected) {
    const std::string id = outline_->VariantId(one.variant);
    const auto use = use_of_.find(id);
    if (use == use_of_.end())
      return Internal("the outline lists " + id + ", the manifest does not");
    if (Asks(use->second) && !options_.asking) continue;
    made.candidates.push_back({id, use->second});
  }
  KeepListed(&made);
  return made;
}

bool TuneSpace::Asks(uint32_t use) const {
  const VariantUse& found = work_.variants[use];
  return TemplateOf(work_, found).points[found.point].asks;
}

// Of a library's algorithms only those that it listed for this problem, where it listed any: those
// of other problems are many, and what it left out here was seldom any faster.
void TuneSpace::KeepListed(SpaceProblem* problem) const {
  nlohmann::json json = ProblemToJson(*outline_, problem->problem);
  json.erase("op");
  const std::string text = json.dump();
  std::set<std::pair<uint32_t, uint32_t>> listing;  // op and template
  const auto lists = [&](const SpaceCandidate& candidate) {
    const VariantUse& use = work_.variants[candidate.use];
    const auto& listed_for = TemplateOf(work_, use).points[use.point].listed_for;
    return std::find(listed_for.begin(), listed_for.end(), text) != listed_for.end();
  };
  const auto where = [this](const SpaceCandidate& candidate) {
    const VariantUse& use = work_.variants[candidate.use];
    return std::pair(use.op, use.template_index);
  };
  for (const SpaceCandidate& candidate : problem->candidates) {
    if (lists(candidate)) listing.insert(where(candidate));
  }
  std::erase_if(problem->candidates, [&](const SpaceCandidate& candidate) {
    return listing.contains(where(candidate)) && !lists(candidate) && !Asks(candidate.use);
  });
}

std::vector<std::string> TuneSpace::CompileWords(uint32_t unit) const {
  std::vector<std::string> words = {"kbundle", "build"};
  words.insert(words.end(), options_.paths.begin(), options_.paths.end());
  words.insert(words.end(), {"--target", options_.target, "--only", work_.units[unit].label});
  if (!options_.add.empty()) words.insert(words.end(), {"--problems", options_.add});
  if (!options_.python.empty()) words.insert(words.end(), {"--python", options_.python});
  return words;
}

std::string TuneSpace::CompileCommand(uint32_t use) {
  const std::set<uint32_t> units = UnitsOf(work_.variants[use]);
  const auto failed = std::find_if(units.begin(), units.end(), [this](uint32_t unit) {
    return !code_->FailureOf(unit).value_or("").empty();
  });
  return ShellCommand(CompileWords(failed == units.end() ? *units.begin() : *failed));
}

Status TuneSpace::StartCompiling(const std::vector<uint32_t>& uses) {
  code_->Finish();  // it uses the context
  context_.limit = options_.compile_limit;
  KB_RETURN_IF_ERROR(FindCompilers(work_, options_.python, &context_));
  Work only = OnlyOf(uses);
  std::vector<uint32_t> numbers(only.units.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    const std::vector<uint32_t>& units = only.variants[i].units;
    for (size_t step = 0; step < units.size(); ++step) {
      if (units[step] != kNoUnit) numbers[units[step]] = work_.variants[uses[i]].units[step];
    }
  }
  return code_->Start(std::move(only), std::move(numbers));
}

std::string TuneSpace::FailureOf(uint32_t use) {
  for (uint32_t unit : UnitsOf(work_.variants[use])) {
    std::string failure = code_->FailureOf(unit).value_or("not compiled");
    if (!failure.empty()) return failure;
  }
  return "";
}

std::string TuneSpace::FingerprintOf(uint32_t use) const {
  const auto found = fingerprints_.find(use);
  return found == fingerprints_.end() ? "" : found->second;
}

std::set<std::string> TuneSpace::DigestsOf(uint32_t use) const {
  std::set<std::string> digests;
  for (uint32_t unit : UnitsOf(work_.variants[use])) {
    if (const auto found = digests_.find(unit); found != digests_.end()) {
      digests.insert(found->second);
    }
  }
  return digests;
}

// The same work with these variants alone, of which the code is there.
Work TuneSpace::OnlyOf(const std::vector<uint32_t>& uses) const {
  std::vector<VariantUse> kept;
  for (uint32_t number : uses) kept.push_back(work_.variants[number]);
  Work only = work_;
  KeepVariants(std::move(kept), &only);
  return only;
}

// Execution plans that the library does not make: candidates that failed, for its reason.
void TuneSpace::LeaveOutRefused(const std::vector<Object>& objects, std::vector<uint32_t>* uses,
                                Work* only) {
  for (size_t i = uses->size(); i-- > 0;) {
    const VariantUse& use = only->variants[i];
    const std::optional<size_t> step = RefusedStep(use, objects);
    if (!step) continue;
    code_->Refuse(work_.variants[(*uses)[i]].units[*step], objects[use.units[*step]].log);
    uses->erase(uses->begin() + static_cast<ptrdiff_t>(i));
    only->variants.erase(only->variants.begin() + static_cast<ptrdiff_t>(i));
  }
}

Result<std::string> TuneSpace::PackedBundle(const std::vector<uint32_t>& uses) {
  std::set<uint32_t> units;
  for (uint32_t use : uses) units.merge(UnitsOf(work_.variants[use]));
  code_->WaitFor(units);
  std::vector<uint32_t> there;
  for (uint32_t use : uses) {
    if (FailureOf(use).empty()) there.push_back(use);
  }
  if (there.empty()) return NotFound("none of the variants could be compiled");
  Work only = OnlyOf(there);
  BuildOptions options;
  Silent silent;
  ToolDigests digests(store_->folder());
  UnitBuilder builder(options, &only, &context_, store_.get(), &digests, &silent);
  KB_RETURN_IF_ERROR(builder.LookUp());
  if (builder.missing() > 0) {
    const Status refused = store_->refusal();
    return Unavailable("the object store lost what was just compiled: " + store_->folder() +
                       (refused.ok() ? "" : "; " + refused.message()));
  }
  LeaveOutRefused(builder.objects(), &there, &only);
  if (there.empty()) return NotFound("a library refuses all of the variants");
  KB_ASSIGN_OR_RETURN(const LearnedWork learned, WithLearnedSteps(only, builder.objects()));
  for (size_t i = 0; i < there.size(); ++i) {
    const VariantUse& use = only.variants[i];
    fingerprints_[there[i]] =
        Fingerprint(learned.work, learned.work.variants[i], builder.objects());
    const std::vector<uint32_t>& units_here = work_.variants[there[i]].units;
    for (size_t step = 0; step < use.units.size(); ++step) {
      if (use.units[step] == kNoUnit) continue;
      digests_[units_here[step]] = ToHex(builder.objects()[use.units[step]].sha256);
    }
  }
  PackInput input;
  input.name = fmt::format("tune{}", bundles_);
  input.work = &learned.work;
  input.objects = &builder.objects();
  input.store = store_.get();
  KB_ASSIGN_OR_RETURN(const std::string bytes, Pack(input));
  const std::string path = fmt::format("{}/{}.kb", folder_->path(), input.name);
  KB_RETURN_IF_ERROR(PublishFile(path, bytes, Durability::kCrashOnly));
  ++bundles_;
  return path;
}

}  // namespace kbundle::builder
