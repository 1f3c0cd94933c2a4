#include "builder/tune/space.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "builder/compile/check_variants.h"
#include "builder/compile/fingerprint.h"
#include "builder/compile/keep_variants.h"
#include "builder/manifest/manifest.h"
#include "builder/pack/outline.h"
#include "builder/pack/pack.h"
#include "builder/pipeline/build.h"
#include "builder/pipeline/compile_all.h"
#include "builder/problem/add.h"
#include "builder/problem/json.h"
#include "builder/problem/listed.h"
#include "builder/provider/provider.h"
#include "builder/support/files.h"
#include "builder/support/process.h"
#include "builder/support/schedule.h"
#include "builder/support/worker_process.h"
#include "kbundle/nearest.h"
#include "kbundle/select.h"

namespace kbundle::builder {
namespace {

// Of a compiler's log: its first words are the error, its last ones how to see it again.
constexpr size_t kShownFirst = 1500, kShownLast = 500;

class Silent : public Reporter {
 public:
  void Progress(int, int, const std::string&) override {}
  void Note(const std::string&) override {}
  void Failure(const std::string&) override {}
  void Warn(const std::string&) override {}
};

const Template& TemplateOf(const Work& work, const VariantUse& use) {
  return work.ops[use.op].op->templates[use.template_index];
}

// The units that hold its code.
std::set<uint32_t> UnitsOf(const VariantUse& use) {
  std::set<uint32_t> units(use.units.begin(), use.units.end());
  units.erase(kNoUnit);
  return units;
}

std::vector<std::string> Environment(std::chrono::seconds limit) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("KBUNDLE_COMPILE_TIMEOUT=")) all.emplace_back(*entry);
  }
  all.push_back(fmt::format("KBUNDLE_COMPILE_TIMEOUT={}", limit.count()));
  return all;
}

std::string EndsOf(const std::string& log) {
  if (log.size() <= kShownFirst + kShownLast) return log;
  return log.substr(0, kShownFirst) + "\n...\n" + log.substr(log.size() - kShownLast);
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

TuneSpace::~TuneSpace() {
  stop_ = true;
  if (compiler_.joinable()) compiler_.join();
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
    made.candidates.push_back({id, use->second});
  }
  KeepListed(&made);
  return made;
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
    return listing.contains(where(candidate)) && !lists(candidate);
  });
}

std::vector<std::string> TuneSpace::CompileWords(const std::string& program, uint32_t unit) const {
  std::vector<std::string> words = {program, "build"};
  words.insert(words.end(), options_.paths.begin(), options_.paths.end());
  words.insert(words.end(), {"--target", options_.target, "--only", work_.units[unit].label});
  if (!options_.python.empty()) words.insert(words.end(), {"--python", options_.python});
  return words;
}

std::string TuneSpace::CompileCommand(uint32_t use) {
  const std::set<uint32_t> units = UnitsOf(work_.variants[use]);
  const std::lock_guard lock(mutex_);
  for (uint32_t unit : units) {
    const auto found = failures_.find(unit);
    if (found == failures_.end() || found->second.empty()) continue;
    return ShellCommand(CompileWords("kbundle", unit));
  }
  return ShellCommand(CompileWords("kbundle", *units.begin()));
}

void TuneSpace::CompileUnit(uint32_t unit) {
  ProcessOptions options;
  options.arguments = CompileWords(OwnExecutable(), unit);
  if (!options_.cache_dir.empty()) {
    options.arguments.insert(options.arguments.end(), {"--cache", options_.cache_dir});
  }
  options.environment = Environment(options_.compile_limit);
  // The compiler's own limit comes first and says more; this one is for NVRTC, which has none.
  options.limit = options_.compile_limit + std::chrono::seconds(5);
  std::string failure;
  const auto result = RunProcess(options);
  if (!result.ok()) {
    failure = result.status().message();
  } else if (!result->ok()) {
    failure = result->Describe() + ": " + EndsOf(result->output);
  }
  const std::lock_guard lock(mutex_);
  failures_[unit] = std::move(failure);
  compiled_.notify_all();
}

Status TuneSpace::StartCompiling(const std::vector<uint32_t>& uses) {
  context_.limit = options_.compile_limit;
  KB_RETURN_IF_ERROR(FindCompilers(work_, options_.python, &context_));
  std::vector<uint32_t> units;
  for (uint32_t use : uses) {
    for (uint32_t unit : UnitsOf(work_.variants[use])) {
      if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
    }
  }
  ToolDigests digests(store_->folder());
  KeyMaker keys(&context_, &digests);
  std::vector<uint32_t> missing;
  for (uint32_t unit : units) {
    KB_ASSIGN_OR_RETURN(const UnitInputs inputs, keys.Make(work_.units[unit]));
    const auto bytes = store_->Get("objects", inputs.key);
    const auto object = bytes ? ParseObject(*bytes) : Result<Object>(NotFound(""));
    if (object.ok() && keys.ChangedRead(inputs, *object).empty()) {
      failures_[unit] = "";
    } else {
      missing.push_back(unit);
    }
  }
  if (compiler_.joinable()) compiler_.join();  // of an earlier list, done or not
  compiler_ = std::thread([this, missing] {
    RunJobs(static_cast<int>(missing.size()), options_.jobs, stop_,
            [&](int i) { CompileUnit(missing[static_cast<size_t>(i)]); });
  });
  return Status();
}

void TuneSpace::WaitFor(const std::set<uint32_t>& units) {
  std::unique_lock lock(mutex_);
  compiled_.wait(lock, [&] {
    return std::all_of(units.begin(), units.end(),
                       [this](uint32_t unit) { return failures_.contains(unit); });
  });
}

std::string TuneSpace::FailureOf(uint32_t use) {
  const std::lock_guard lock(mutex_);
  for (uint32_t unit : UnitsOf(work_.variants[use])) {
    const auto found = failures_.find(unit);
    if (found == failures_.end()) return "not compiled";
    if (!found->second.empty()) return found->second;
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
  const std::lock_guard lock(mutex_);
  for (size_t i = uses->size(); i-- > 0;) {
    const VariantUse& use = only->variants[i];
    const std::optional<size_t> step = RefusedStep(use, objects);
    if (!step) continue;
    failures_[work_.variants[(*uses)[i]].units[*step]] = objects[use.units[*step]].log;
    uses->erase(uses->begin() + static_cast<ptrdiff_t>(i));
    only->variants.erase(only->variants.begin() + static_cast<ptrdiff_t>(i));
  }
}

Result<std::string> TuneSpace::PackedBundle(const std::vector<uint32_t>& uses) {
  std::set<uint32_t> units;
  for (uint32_t use : uses) units.merge(UnitsOf(work_.variants[use]));
  WaitFor(units);
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
  for (size_t i = 0; i < there.size(); ++i) {
    const VariantUse& use = only.variants[i];
    fingerprints_[there[i]] = Fingerprint(only, use, builder.objects());
    const std::vector<uint32_t>& units_here = work_.variants[there[i]].units;
    for (size_t step = 0; step < use.units.size(); ++step) {
      if (use.units[step] == kNoUnit) continue;
      digests_[units_here[step]] = ToHex(builder.objects()[use.units[step]].sha256);
    }
  }
  PackInput input;
  input.name = fmt::format("tune{}", bundles_);
  input.work = &only;
  input.objects = &builder.objects();
  input.store = store_.get();
  KB_ASSIGN_OR_RETURN(const std::string bytes, Pack(input));
  const std::string path = fmt::format("{}/{}.kb", folder_->path(), input.name);
  KB_RETURN_IF_ERROR(PublishFile(path, bytes, Durability::kCrashOnly));
  ++bundles_;
  return path;
}

}  // namespace kbundle::builder
