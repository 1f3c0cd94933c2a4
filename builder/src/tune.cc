#include "tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "files.h"
#include "problem_json.h"
#include "process.h"
#include "tune_journal.h"
#include "tune_replay.h"
#include "tuning_fingerprint.h"
#include "tuning_protocol.h"
#include "tuning_record.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kSecondsPerCandidate = 0.25;  // about, when a budget must choose how many
constexpr size_t kLeastCandidates = 4;
constexpr double kWideSpread = 0.05;  // of quartiles: something else uses the device

class Tuner {
 public:
  Tuner(const TuneOptions& options, TuneReporter* reporter, const std::atomic<bool>* cancel)
      : options_(options), reporter_(*reporter), cancel_(*cancel), start_(Clock::now()) {}

  Result<TuneReport> Run() {
    KB_RETURN_IF_ERROR(OpenSpace());
    KB_RETURN_IF_ERROR(FindProblems());
    KB_RETURN_IF_ERROR(StartMeasuring());
    for (size_t i = 0; i < wanted_.size(); ++i) KB_RETURN_IF_ERROR(MeasureOne(i));
    KB_RETURN_IF_ERROR(WriteAll());
    Summarize();
    return std::move(report_);
  }

 private:
  struct FamilyFiles {
    std::string records;
    std::unique_ptr<JournalFile> journal;
    std::vector<TuningRecord> made;
  };

  bool recording() const { return options_.only.empty(); }
  bool replaying() const { return !options_.replay.empty(); }

  Status OpenSpace() {
    SpaceOptions options = options_.space;
    if (options.target == "host") options.target = HostDevice().ToString();
    target_ = options.target;
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(target_));
    cuda_ = target.kind != TargetKind::kHost;
    if (!cuda_ && target.Fit(HostDevice()) == 0) {
      return FailedPrecondition(fmt::format("this CPU is {} and cannot run {}; --target host takes "
                                            "what fits", HostDevice().ToString(), target_));
    }
    KB_ASSIGN_OR_RETURN(space_, TuneSpace::Open(options));
    return Status();
  }

  Status FindProblems() {
    if (options_.problem.empty() && options_.problems_file.empty()) {
      KB_ASSIGN_OR_RETURN(problems_, space_->ListedProblems());
    } else {
      KB_RETURN_IF_ERROR(ReadProblems());
    }
    const size_t limit = CandidateLimit();
    std::set<std::string> keys;
    for (SpaceProblem& problem : problems_) {
      KB_RETURN_IF_ERROR(ChooseCandidates(limit, &problem));
      if (problem.candidates.empty() || problem.problem.AllResultsEmpty()) continue;
      if (problem.family->reference.empty() && !replaying()) {
        Warn(problem.family->manifest_path + ": no reference, so nothing of it can be tuned");
        continue;
      }
      if (keys.insert(problem.problem.op_name + problem.problem.key).second) {
        wanted_.push_back(&problem);
      }
    }
    report_.problems = static_cast<int>(wanted_.size());
    if (!wanted_.empty()) return Status();
    return InvalidArgument(fmt::format(
        "no problem of these manifests has a legal variant{} for {}; nothing to tune",
        options_.only.empty() ? "" : " of that name", target_));
  }

  Status ReadProblems() {
    std::string text = options_.problem, where = "--problem";
    if (text.empty()) {
      where = options_.problems_file;
      KB_ASSIGN_OR_RETURN(text, ReadFile(options_.problems_file));
    }
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (line.empty()) continue;
      auto problem = ProblemFromJson(space_->outline(), Json::parse(line, nullptr, false));
      if (!problem.ok()) {
        return std::move(problem).status().Annotate(fmt::format("{}:{}", where, number));
      }
      if (!options_.space.op.empty() && problem->op_name != options_.space.op) continue;
      KB_ASSIGN_OR_RETURN(SpaceProblem made, space_->MakeProblem(*problem));
      problems_.push_back(std::move(made));
    }
    return Status();
  }

  // How many candidates of a problem the budget has time for.
  size_t CandidateLimit() const {
    if (options_.budget.count() == 0) return SIZE_MAX;
    const double share = Seconds(options_.budget).count() / std::max<size_t>(1, problems_.size());
    return std::max(kLeastCandidates, static_cast<size_t>(share / kSecondsPerCandidate));
  }

  // The same grid points for all problems of an op, as far as they are legal: code is shared.
  Status ChooseCandidates(size_t limit, SpaceProblem* problem) const {
    if (!options_.only.empty()) {
      std::erase_if(problem->candidates, [this](const SpaceCandidate& candidate) {
        const auto& only = options_.only;
        return std::find(only.begin(), only.end(), candidate.id) == only.end();
      });
    } else if (problem->candidates.size() > limit) {
      std::vector<SpaceCandidate> chosen;
      for (size_t i : SpreadOf(problem->candidates.size(), limit, problem->problem.op_name)) {
        chosen.push_back(problem->candidates[i]);
      }
      problem->candidates = std::move(chosen);
    }
    return Status();
  }

  Status StartMeasuring() {
    if (replaying()) {
      measurer_ = MakeReplayMeasurer(options_.replay, wanted_);
      KB_ASSIGN_OR_RETURN(facts_, measurer_->Facts());
      return Status();
    }
    MeasurerOptions options = options_.measurer;
    options.cuda = cuda_;
    auto child = std::make_unique<ChildMeasurer>(options, wanted_, &space_->outline());
    KB_ASSIGN_OR_RETURN(facts_, child->Facts());
    KB_RETURN_IF_ERROR(CheckDevice());
    KB_ASSIGN_OR_RETURN(references_, References::Open(options_.reference, space_->outline()));
    references_->Plan(wanted_);
    child->set_references(references_.get());
    child_ = child.get();
    measurer_ = std::move(child);
    std::vector<uint32_t> uses;
    for (const SpaceProblem* problem : wanted_) {
      for (const SpaceCandidate& candidate : problem->candidates) uses.push_back(candidate.use);
    }
    return space_->StartCompiling(uses);
  }

  Status CheckDevice() {
    if (!cuda_) return Status();
    Device device;
    device.kind = Device::Kind::kCuda;
    const std::string found = facts_.value("target", "");
    if (found.starts_with("sm_")) {
      const int number = std::atoi(found.c_str() + 3);
      device.major = number / 10;
      device.minor = number % 10;
    }
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(target_));
    if (target.Fit(device) == 0) {
      return FailedPrecondition(fmt::format("GPU 0 is an {}, {}: it cannot run {}; tune on a GPU "
                                            "that can, or for another --target",
                                            facts_.value("name", "unknown GPU"), found, target_));
    }
    const int others = facts_.value("other_processes", 0);
    if (others > 0) Warn(fmt::format("{} other processes use GPU 0: times will be noisy", others));
    return Status();
  }

  Result<FamilyFiles*> FilesOf(const Family* family) {
    const auto found = files_.find(family);
    if (found != files_.end()) return &found->second;
    const std::string folder =
        options_.out.empty() ? family->directory + "/tuning" : options_.out + "/" + family->name;
    KB_RETURN_IF_ERROR(MakeFolders(folder));
    const std::string stem = folder + "/" + DeviceSlug(facts_.value("name", ""));
    FamilyFiles files;
    files.records = stem + ".jsonl";
    KB_ASSIGN_OR_RETURN(
        files.journal,
        JournalFile::Open(stem + ".journal", {target_, facts_.value("name", ""), kTuningProtocol},
                          options_.resume));
    return &files_.emplace(family, std::move(files)).first->second;
  }

  Result<std::shared_ptr<const Bundle>> BundleOf(const SpaceProblem& problem) {
    const std::string& op = problem.problem.op_name;
    if (const auto found = bundles_.find(op); found != bundles_.end()) return found->second;
    std::set<uint32_t> uses;
    for (const SpaceProblem* other : wanted_) {
      if (other->problem.op_name != op) continue;
      for (const SpaceCandidate& candidate : other->candidates) uses.insert(candidate.use);
    }
    KB_ASSIGN_OR_RETURN(const std::string path,
                        space_->PackedBundle(std::vector<uint32_t>(uses.begin(), uses.end())));
    KB_ASSIGN_OR_RETURN(auto bundle, Bundle::Open(path));
    bundles_[op] = bundle;
    return bundle;
  }

  // The state before anything is measured: names, fingerprints, and who has no code.
  Result<ProblemState> FreshState(const SpaceProblem& problem) {
    ProblemState state;
    state.problem = ProblemToJson(space_->outline(), problem.problem).dump();
    std::shared_ptr<const Bundle> bundle;
    if (!replaying()) {
      auto made = BundleOf(problem);
      if (made.ok()) bundle = *made;
      if (!made.ok() && made.status().code() != StatusCode::kNotFound) return made.status();
      bundle_path_ = bundle != nullptr ? bundle->path() : "";
    }
    for (const SpaceCandidate& candidate : problem.candidates) {
      CandidateState one;
      one.variant = candidate.id;
      const std::string why = replaying() ? "" : space_->FailureOf(candidate.use);
      if (!why.empty()) {
        one.failure = TuningFailure{"compile", why, space_->CompileCommand(candidate.use)};
      } else if (bundle != nullptr) {
        KB_ASSIGN_OR_RETURN(const auto variants, bundle->FindVariants(candidate.id));
        one.fingerprint = FingerprintOf(*bundle, variants.at(0));
      }
      state.candidates.push_back(std::move(one));
    }
    return state;
  }

  std::string CommandFor(const ProblemState& state, const std::string& variant) const {
    std::vector<std::string> words = {"kbundle", "tune"};
    words.insert(words.end(), options_.space.paths.begin(), options_.space.paths.end());
    words.insert(words.end(),
                 {"--target", target_, "--problem", state.problem, "--only", variant});
    return ShellCommand(words);
  }

  bool OverBudget() const {
    return options_.budget.count() > 0 && Clock::now() - start_ > options_.budget;
  }

  // When this problem has had its share of what is left.
  Clock::time_point ShareEnd(size_t number) const {
    if (options_.budget.count() == 0) return Clock::time_point::max();
    const auto left = options_.budget - (Clock::now() - start_);
    return Clock::now() + left / static_cast<int64_t>(wanted_.size() - number);
  }

  Status MeasureOne(size_t number) {
    const SpaceProblem& problem = *wanted_[number];
    if (cancel_) {
      return Cancelled(fmt::format("stopped with {} of {} problems to go; the journal is kept, and "
                                   "--resume goes on from there",
                                   wanted_.size() - number, wanted_.size()));
    }
    if (OverBudget()) {
      report_.out_of_budget = true;
      ++report_.skipped;
      return Status();
    }
    reporter_.Progress(number, wanted_.size(), problem.problem.ToString());
    KB_ASSIGN_OR_RETURN(ProblemState state, FreshState(problem));
    FamilyFiles* files = nullptr;
    if (recording()) {
      KB_ASSIGN_OR_RETURN(files, FilesOf(problem.family));
      if (options_.resume) Replay(files->journal->events(), &state);
    }
    device_state_ = Json::object();
    KB_RETURN_IF_ERROR(MeasureSteps(number, files, &state));
    measurer_->Drop(number);
    return Conclude(state, files);
  }

  Status MeasureSteps(size_t number, FamilyFiles* files, ProblemState* state) {
    const auto share_end = ShareEnd(number);
    bool loaded = false;
    int round = -1;
    while (true) {
      const TuningStep step = NextStep(*state);
      if (step.kind == TuningStep::Kind::kDone || cancel_) return Status();
      // Only between rounds, so that every candidate has had the same.
      const bool between = step.kind == TuningStep::Kind::kTime && step.round != round;
      if (between && step.round >= kTuningDropAfter && Clock::now() > share_end) return Status();
      round = step.round;
      if (!loaded) {
        const Status status = measurer_->Load(number, bundle_path_);
        if (!status.ok()) {
          Warn(fmt::format("{}: not tuned: {}", wanted_[number]->problem.ToString(),
                           status.message()));
          return Status();
        }
        loaded = true;
      }
      KB_RETURN_IF_ERROR(Take(step, files, state));
    }
  }

  Status Take(const TuningStep& step, FamilyFiles* files, ProblemState* state) {
    const CandidateState& candidate = state->candidates[step.candidate];
    const bool check = step.kind == TuningStep::Kind::kCheck;
    Measured measured = check ? measurer_->Check(candidate.variant)
                              : measurer_->Time(candidate.variant, step.round, kTuningSamples);
    JournalEvent event;
    event.problem = state->problem;
    event.variant = candidate.variant;
    event.fingerprint = candidate.fingerprint;
    event.round = check ? -1 : step.round;
    if (!measured.ok()) {
      event.failure = TuningFailure{measured.kind, measured.message,
                                    CommandFor(*state, candidate.variant)};
    }
    event.ns = std::move(measured.ns);
    if (measured.state.is_object()) event.state = device_state_ = measured.state;
    if (files != nullptr) KB_RETURN_IF_ERROR(files->journal->Append(event));
    Enter(event, state);
    return Status();
  }

  Status Conclude(const ProblemState& state, FamilyFiles* files) {
    Json device = facts_;
    for (const auto& [key, value] : device_state_.items()) device[key] = value;
    TuningRecord record = builder::Conclude(state, target_, device);
    const bool any = std::any_of(
        record.candidates.begin(), record.candidates.end(),
        [](const CandidateRecord& one) { return one.samples > 0 || one.failure.has_value(); });
    for (const CandidateRecord& one : record.candidates) {
      ++report_.candidates;
      if (!one.failure) continue;
      report_.failures.push_back({state.problem, one.variant, one.failure->kind,
                                  one.failure->message, one.failure->command});
    }
    if (cancel_) return Status();
    ++(any ? report_.measured : report_.skipped);
    if (!any) return Status();
    if (files != nullptr) files->made.push_back(record);
    records_.push_back(std::move(record));
    return Status();
  }

  // What was measured now takes the place of what was there of the same problem and device.
  Status WriteAll() {
    for (auto& [family, files] : files_) {
      auto before = ReadRecords(files.records);
      if (!before.ok() && before.status().code() != StatusCode::kNotFound) return before.status();
      std::vector<TuningRecord> kept;
      std::set<std::string> made;
      for (const TuningRecord& record : files.made) made.insert(record.key());
      for (TuningRecord& record : before.ok() ? *before : std::vector<TuningRecord>()) {
        if (!made.contains(record.key())) kept.push_back(std::move(record));
      }
      KB_RETURN_IF_ERROR(
          WriteRecords(files.records, MergeRecords(std::move(kept), std::move(files.made))));
      files.journal->Remove();
      report_.files.push_back(files.records);
    }
    return Status();
  }

  void Warn(const std::string& text) {
    report_.warnings.push_back(text);
    reporter_.Warn(text);
  }

  void Summarize() {
    report_.device = facts_.value("name", "");
    double logs = 0;
    int counted = 0;
    std::vector<double> spreads;
    for (const TuningRecord& record : records_) {
      for (const CandidateRecord& one : record.candidates) {
        if (one.us.median > 0) spreads.push_back((one.us.q75 - one.us.q25) / one.us.median);
      }
      if (record.winner.empty() || !(record.gain > 0)) continue;
      report_.changed += record.winner != record.default_variant;
      logs += std::log(record.gain);
      ++counted;
      if (record.gain > report_.best_gain) {
        report_.best_gain = record.gain;
        report_.best_problem = record.problem.dump();
      }
    }
    if (counted > 0) report_.geometric_gain = std::exp(logs / counted);
    if (!spreads.empty()) report_.spread = QuartilesOf(spreads).median;
    if (report_.spread > kWideSpread) {
      Warn(fmt::format("half of the samples lie {:.1f} % apart: something else uses this device; "
                       "tune again when it is quiet",
                       100 * report_.spread));
    }
    if (child_ != nullptr) report_.restarts = child_->restarts();
    report_.seconds = Seconds(Clock::now() - start_).count();
  }

  const TuneOptions& options_;
  TuneReporter& reporter_;
  const std::atomic<bool>& cancel_;
  const Clock::time_point start_;
  std::string target_;
  bool cuda_ = false;
  std::unique_ptr<TuneSpace> space_;
  std::vector<SpaceProblem> problems_;
  std::vector<const SpaceProblem*> wanted_;
  std::unique_ptr<References> references_;
  std::unique_ptr<Measurer> measurer_;
  ChildMeasurer* child_ = nullptr;
  Json facts_, device_state_;
  std::map<const Family*, FamilyFiles> files_;
  std::map<std::string, std::shared_ptr<const Bundle>> bundles_;
  std::string bundle_path_;  // of the problem that is measured
  std::vector<TuningRecord> records_;
  TuneReport report_;
};

}  // namespace

Result<TuneReport> Tune(const TuneOptions& options, TuneReporter& reporter,
                        const std::atomic<bool>& cancel) {
  return Tuner(options, &reporter, &cancel).Run();
}

}  // namespace kbundle::builder
