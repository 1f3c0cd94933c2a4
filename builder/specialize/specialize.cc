// Each phase looks at what is there and does only what is missing, so that a killed run goes on by
// being started again: algorithms are kept problem by problem, a tune has its journal, code its
// cache, and what the library chose before lies beside the output until all is done. Everything
// that decides bytes is written beside the manifests; so a build without a GPU gives the same ones.
#include "builder/specialize/specialize.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "builder/conformance/conformance.h"
#include "builder/manifest/manifest.h"
#include "builder/pipeline/build.h"
#include "builder/pipeline/output.h"
#include "builder/problem/file.h"
#include "builder/problem/json.h"
#include "builder/provider/provider.h"
#include "builder/support/process.h"
#include "builder/support/worker_process.h"
#include "builder/tune/target.h"
#include "builder/tune/tune.h"
#include "kbundle/nearest.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

class MeasuringReporter : public TuneReporter {
 public:
  explicit MeasuringReporter(Reporter* reporter) : reporter_(*reporter) {}
  void Progress(size_t finished, size_t total, const std::string& what) override {
    reporter_.Progress(static_cast<int>(finished), static_cast<int>(total), what);
  }
  void Warn(const std::string& text) override { reporter_.Warn(text); }
  void Note(const std::string& text) override { reporter_.Note(text); }

 private:
  Reporter& reporter_;
};

class Specialization {
 public:
  Specialization(const SpecializeOptions& asked, Reporter* reporter,
                 const std::atomic<bool>* cancel)
      : asked_(asked), reporter_(*reporter), cancel_(*cancel) {}

  Result<Specialized> Run() {
    KB_RETURN_IF_ERROR(ReadModel());
    KB_RETURN_IF_ERROR(FindDevice());
    KB_RETURN_IF_ERROR(LookBefore());
    for (const std::string& verb : listing_) {
      if (cuda_) KB_RETURN_IF_ERROR(ListPoints(verb));
    }
    KB_RETURN_IF_ERROR(TuneMissing());
    KB_RETURN_IF_ERROR(BuildTo(asked_.output, "building"));
    KB_RETURN_IF_ERROR(RunWhatNeverRan());
    KB_RETURN_IF_ERROR(LookAfter());
    return std::move(result_);
  }

 private:
  // Which of the families the model uses, and its problems without those of others.
  Status ReadModel() {
    KB_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Make());
    folder_.emplace(std::move(folder));
    KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(asked_.model));
    std::set<std::string> used;
    std::vector<std::pair<std::string, std::string>> lines;  // family, line
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      const bool named = json.is_object() && json.contains("op") && json["op"].is_string();
      const std::string op = named ? json["op"].get<std::string>() : "";
      lines.emplace_back(op.substr(0, op.find('.')), line);
      used.insert(lines.back().first);
    }
    KB_RETURN_IF_ERROR(KeepUsed(used));
    for (const auto& [family, line] : lines) {
      if (names_.contains(family)) result_.problems += line + "\n";
    }
    result_.kept = asked_.output + ".before";
    key_ = ToHex(Sha256Of(text.data(), text.size())) + " " + asked_.target;
    KB_ASSIGN_OR_RETURN(space_, TuneSpace::Open(Space()));  // names what is wrong with a line
    if (space_->passed_over() > 0) reporter_.Note(PassedOver(space_->passed_over(), asked_.model));
    int others = 0;
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems,
                        ReadProblemFile(asked_.model, space_->outline(), &others));
    if (problems.empty()) {
      return NotFound(
          fmt::format("specializing for {}: none of its problems is of an op that {} "
                      "has variants of for {}",
                      asked_.model, fmt::join(result_.manifests, ", "), asked_.target));
    }
    return CheckBundleOutput(asked_.output, space_->families(), /*force=*/false);
  }

  Status KeepUsed(const std::set<std::string>& used) {
    std::vector<std::string> known;
    KB_ASSIGN_OR_RETURN(const std::vector<std::string> manifests, FindManifests(asked_.paths));
    for (const std::string& path : manifests) {
      KB_ASSIGN_OR_RETURN(const Family family, ReadManifest(path));
      known.push_back(family.name);
      if (!used.contains(family.name)) continue;
      result_.manifests.push_back(path);
      names_.insert(family.name);
      for (const Op& op : family.ops) {
        for (const Template& variant : op.templates) {
          const std::string verb(variant.provider->ListingVerb());
          if (!verb.empty()) listing_.insert(verb);
        }
      }
    }
    if (!result_.manifests.empty()) return Status();
    const std::string first = used.empty() ? "" : *used.rbegin();
    return NotFound(fmt::format("specializing for {}: it names no family of {}{}", asked_.model,
                                fmt::join(asked_.paths, ", "), DidYouMean(first, known)));
  }

  SpaceOptions Space() const {
    SpaceOptions space;
    space.paths = result_.manifests;
    space.target = asked_.target == "host" ? HostDevice().ToString() : asked_.target;
    space.add = asked_.model;
    space.cache_dir = asked_.cache_dir;
    space.jobs = asked_.jobs;
    space.python = asked_.python;
    return space;
  }

  // Before anything is compiled: a target that is not this machine's is no reason to wait.
  Status FindDevice() {
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(space_->options().target));
    cuda_ = target.kind != TargetKind::kHost;
    if (!cuda_) KB_RETURN_IF_ERROR(CheckCpu(target));
    MeasurerOptions options;
    options.cuda = cuda_;
    const std::vector<const SpaceProblem*> none;
    ChildMeasurer child(options, none, &space_->outline());
    KB_ASSIGN_OR_RETURN(const Json facts, child.Facts());
    if (cuda_) KB_RETURN_IF_ERROR(CheckGpu(target, facts));
    recorded_as_ = facts.value("name", "");
    KB_ASSIGN_OR_RETURN(device_, DeviceFromTargetName(asked_.target));
    if (cuda_) device_.name = recorded_as_;
    if (cuda_) device_.sm_count = facts.value("sm_count", device_.sm_count);
    return Status();
  }

  // The library with the records that it has; of problems without one, what it would choose.
  Status LookBefore() {
    const std::string base = folder_->path() + "/before.kb";
    KB_RETURN_IF_ERROR(BuildTo(base, "building the library as it is"));
    KB_ASSIGN_OR_RETURN(const auto bundle, Bundle::Open(base));
    KB_ASSIGN_OR_RETURN(now_, ChoicesFor(*bundle, asked_.model, device_, recorded_as_));
    KB_ASSIGN_OR_RETURN(result_.before, ReadChoices(result_.kept, key_));
    if (result_.before.size() == now_.size()) return Status();
    result_.before = now_;
    return WriteChoices(result_.kept, key_, result_.before);
  }

  // In a process of its own: no context of ours is to be on the GPU while candidates are timed.
  Status ListPoints(const std::string& verb) {
    Say("listing " + verb);
    ProcessOptions child;
    child.arguments = {OwnExecutable(), verb};
    child.arguments.insert(child.arguments.end(), result_.manifests.begin(),
                           result_.manifests.end());
    for (const std::string& word :
         {std::string("--target"), asked_.target, std::string("--problems"), asked_.model,
          std::string("--missing")}) {
      child.arguments.push_back(word);
    }
    for (char** variable = environ; *variable != nullptr; ++variable) {
      child.environment.emplace_back(*variable);
    }
    child.limit = std::chrono::hours(2);
    KB_ASSIGN_OR_RETURN(const ProcessResult listed, RunProcess(child));
    if (!listed.ok()) return FailedPrecondition(listed.Describe() + ": " + listed.output);
    reporter_.Note(listed.output);
    const std::string_view wrote = "wrote ";
    for (size_t at = listed.output.find(wrote); at != std::string::npos;) {
      const size_t end = std::min(listed.output.find('\n', at), listed.output.size());
      result_.written.insert(listed.output.substr(at + wrote.size(), end - at - wrote.size()));
      at = listed.output.find(wrote, end);
    }
    return Status();
  }

  // What has a choice and no record of this device yet.
  Status TuneMissing() {
    KB_ASSIGN_OR_RETURN(space_, TuneSpace::Open(Space()));  // with new algorithms
    int passed_over = 0;
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems,
                        ReadProblemFile(asked_.model, space_->outline(), &passed_over));
    if (problems.size() != now_.size()) return Internal("a problem came or went: " + asked_.model);
    std::string lines;
    int count = 0;
    for (size_t i = 0; i < problems.size(); ++i) {
      if (now_[i].tuned_here || now_[i].empty) continue;
      KB_ASSIGN_OR_RETURN(const SpaceProblem made, space_->MakeProblem(problems[i]));
      if (made.candidates.size() < 2 || made.family->reference.empty()) continue;
      lines += ProblemToJson(space_->outline(), problems[i]).dump() + "\n";
      ++count;
    }
    if (count == 0) return Status();
    Say(fmt::format("tuning {} of {} problems", count, problems.size()));
    TuneOptions options;
    options.space = Space();
    options.reference.python = asked_.python;
    options.problems_file = folder_->path() + "/untuned.jsonl";
    options.resume = true;
    options.gpus = asked_.gpus;
    KB_RETURN_IF_ERROR(PublishFile(options.problems_file, lines, Durability::kCrashOnly));
    MeasuringReporter measuring(&reporter_);
    const Result<TuneReport> report = Tune(options, measuring, cancel_);
    KB_RETURN_IF_ERROR(report.status());
    result_.written.insert(report->files.begin(), report->files.end());
    for (const std::string& one : report->unanswered) reporter_.Warn("no record of " + one);
    return Status();
  }

  Status BuildTo(const std::string& output, const std::string& doing) {
    Say(doing);
    BuildOptions options;
    options.paths = result_.manifests;
    options.output = output;
    options.targets = {asked_.target};
    options.problems = asked_.model;
    options.python = asked_.python;
    options.cache_dir = asked_.cache_dir;
    options.jobs = asked_.jobs;
    options.lean = asked_.lean;
    return Build(options, reporter_, cancel_).status();
  }

  // A strict process takes what conformance ran here; so what is chosen is run, and nothing else.
  Status RunWhatNeverRan() {
    KB_RETURN_IF_ERROR(LookAfter());
    std::set<std::string> never;
    for (const ModelChoice& one : result_.after) {
      if (!one.variant.empty() && !one.empty && !one.runs_strict) never.insert(one.variant);
    }
    if (never.empty()) return Status();
    Say(fmt::format("comparing {} variants with their references", never.size()));
    ConformanceOptions options;
    options.space = Space();
    options.space.target = asked_.target;
    options.reference.python = asked_.python;
    options.choice.only.assign(never.begin(), never.end());
    options.note_only = true;
    MeasuringReporter measuring(&reporter_);
    const Result<ConformanceReport> report = RunConformance(options, measuring, cancel_);
    KB_RETURN_IF_ERROR(report.status());
    for (const VariantOutcome& one : report->variants) {
      if (!one.right()) reporter_.Warn(one.variant + ": " + one.kind + ": " + one.message);
    }
    if (report->files.empty()) return Status();
    result_.written.insert(report->files.begin(), report->files.end());
    return BuildTo(asked_.output, "building with what ran");
  }

  Status LookAfter() {
    KB_ASSIGN_OR_RETURN(const auto bundle, Bundle::Open(asked_.output));
    KB_ASSIGN_OR_RETURN(result_.after, ChoicesFor(*bundle, asked_.model, device_, recorded_as_));
    return Status();
  }

  void Say(const std::string& what) { reporter_.Note("specialize: " + what); }

  const SpecializeOptions& asked_;
  Reporter& reporter_;
  const std::atomic<bool>& cancel_;
  std::optional<TemporaryFolder> folder_;
  std::set<std::string> names_;    // theirs
  std::set<std::string> listing_;  // verbs that list points of theirs on a GPU
  std::string key_;                // of the model and the target
  std::unique_ptr<TuneSpace> space_;
  bool cuda_ = false;
  Device device_;
  std::string recorded_as_;       // the device's name in tuning records
  std::vector<ModelChoice> now_;  // as the library chooses with the records that it has
  Specialized result_;
};

}  // namespace

Result<Specialized> Specialize(const SpecializeOptions& options, Reporter& reporter,
                               const std::atomic<bool>& cancel) {
  return Specialization(options, &reporter, &cancel).Run();
}

}  // namespace kbundle::builder
