#include "tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "files.h"
#include "problem_file.h"
#include "problem_json.h"
#include "process.h"
#include "tune_journal.h"
#include "tune_replay.h"
#include "tuning_journal.h"
#include "tuning_protocol.h"
#include "tuning_record.h"
#include "tuning_schedule.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr char kNoFingerprint[] = "0000000000000000";  // of a replayed candidate
constexpr double kWideSpread = 0.05;  // of quartiles: something else uses the device

// Winners, gains over the default, and how far the samples spread.
void SummarizeRecords(const std::vector<TuningRecord>& records, TuneReport* report) {
  double logs = 0;
  int counted = 0;
  std::vector<double> spreads;
  for (const TuningRecord& record : records) {
    for (const RecordCandidate& one : record.candidates) {
      if (one.us) spreads.push_back((one.us->high - one.us->low) / one.us->median);
    }
    const RecordCandidate* winner = record.Find(record.winner);
    if (winner == nullptr || !winner->us) continue;
    const double gain = record.winner == record.base ? 1 : 1 / winner->ratio;
    report->changed += record.winner != record.base;
    logs += std::log(gain);
    ++counted;
    if (gain <= report->best_gain) continue;
    report->best_gain = gain;
    report->best_problem = record.op + " " + record.problem.dump();
  }
  if (counted > 0) report->geometric_gain = std::exp(logs / counted);
  if (!spreads.empty()) report->spread = QuartilesOf(spreads).median;
}

class Tuner {
 public:
  Tuner(const TuneOptions& options, TuneReporter* reporter, const std::atomic<bool>* cancel)
      : options_(options), reporter_(*reporter), cancel_(*cancel), start_(Clock::now()) {}

  Result<TuneReport> Run() {
    KB_RETURN_IF_ERROR(OpenSpace());
    KB_RETURN_IF_ERROR(FindProblems());
    KB_RETURN_IF_ERROR(StartMeasuring());
    for (size_t i = 0; i < wanted_.size(); ++i) KB_RETURN_IF_ERROR(MeasureOne(i));
    for (auto& [family, files] : files_) KB_RETURN_IF_ERROR(Finish(&files));
    Summarize();
    return std::move(report_);
  }

 private:
  // Of one family. Without a journal (--only) nothing is written.
  struct FamilyFiles {
    std::string records;
    std::unique_ptr<JournalFile> journal;
    TuningState state;
  };

  bool recording() const { return options_.only.empty(); }
  bool replaying() const { return !options_.replay.empty(); }

  Status OpenSpace() {
    SpaceOptions options = options_.space;
    if (options.target == "host") options.target = HostDevice().ToString();
    options.python = options_.reference.python;
    target_ = options.target;
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(target_));
    cuda_ = target.kind != TargetKind::kHost;
    if (!cuda_ && target.Fit(HostDevice()) == 0) {
      return FailedPrecondition(
          fmt::format("this CPU is {} and cannot run {}; --target host takes "
                      "what fits",
                      HostDevice().ToString(), target_));
    }
    KB_ASSIGN_OR_RETURN(space_, TuneSpace::Open(options));
    return Status();
  }

  Status FindProblems() {
    if (options_.problem.empty() && options_.problems_file.empty()) {
      KB_ASSIGN_OR_RETURN(problems_,
                          options_.held_out ? space_->HeldOutProblems() : space_->ListedProblems());
    } else {
      KB_RETURN_IF_ERROR(ReadProblems());
    }
    std::set<std::string> keys;
    for (SpaceProblem& problem : problems_) {
      ChooseCandidates(&problem);
      if (problem.candidates.empty() || problem.problem.AllResultsEmpty()) continue;
      if (problem.family->reference.empty() && !replaying()) {
        Warn(problem.family->manifest_path + ": no reference, so nothing of it can be tuned");
        continue;
      }
      if (keys.insert(problem.problem.op_name + problem.problem.key).second) {
        wanted_.push_back(&problem);
      }
    }
    if (options_.budget.count() > 0) SpreadOverOps();
    report_.problems = static_cast<int>(wanted_.size());
    if (!wanted_.empty()) return Status();
    return InvalidArgument(
        fmt::format("no problem of these manifests has a legal variant{} for {}; nothing to tune",
                    options_.only.empty() ? "" : " of that name", target_));
  }

  Status ReadProblems() {
    const Bundle& bundle = space_->outline();
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems,
                        options_.problem.empty()
                            ? ReadProblemFile(options_.problems_file, bundle)
                            : ParseProblems(options_.problem, "--problem", bundle));
    for (const Problem& problem : problems) {
      if (!options_.space.op.empty() && problem.op_name != options_.space.op) continue;
      KB_ASSIGN_OR_RETURN(SpaceProblem made, space_->MakeProblem(problem));
      problems_.push_back(std::move(made));
    }
    return Status();
  }

  // So that a budget that ends early has had something for every op.
  void SpreadOverOps() {
    std::map<std::string, int> seen;
    std::map<const SpaceProblem*, int> turn;
    for (const SpaceProblem* problem : wanted_) turn[problem] = seen[problem->problem.op_name]++;
    std::stable_sort(wanted_.begin(), wanted_.end(),
                     [&](const auto* a, const auto* b) { return turn[a] < turn[b]; });
  }

  void ChooseCandidates(SpaceProblem* problem) const {
    if (options_.only.empty()) return;
    std::erase_if(problem->candidates, [this](const SpaceCandidate& candidate) {
      const auto& only = options_.only;
      return std::find(only.begin(), only.end(), candidate.id) == only.end();
    });
  }

  // Those that are going to be measured: the others are not even compiled.
  std::vector<uint32_t> UsesOf(const SpaceProblem& problem) const {
    std::vector<uint32_t> uses;
    for (int i : MeasuredCandidates(problem.candidates.size(), kDefaultSeed)) {
      uses.push_back(problem.candidates[static_cast<size_t>(i)].use);
    }
    return uses;
  }

  Status StartMeasuring() {
    if (replaying()) {
      measurer_ = MakeReplayMeasurer(options_.replay, wanted_);
      KB_ASSIGN_OR_RETURN(facts_, measurer_->Facts());
      return Status();
    }
    MeasurerOptions options = options_.measurer;
    options.cuda = cuda_;
    options.sample_ns = kSampleNs;
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
      for (uint32_t use : UsesOf(*problem)) uses.push_back(use);
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
      return FailedPrecondition(
          fmt::format("GPU 0 is an {}, {}: it cannot run {}; tune on a GPU "
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
    FamilyFiles& files = files_[family];
    const Json start = StartEvent(target_, facts_, kDefaultSeed);
    if (recording()) {
      const std::string folder =
          options_.out.empty() ? family->directory + "/tuning" : options_.out + "/" + family->name;
      KB_RETURN_IF_ERROR(MakeFolders(folder));
      const std::string stem = folder + "/" + DeviceSlug(facts_.value("name", ""));
      files.records = stem + ".jsonl";
      KB_ASSIGN_OR_RETURN(files.journal, JournalFile::Open(stem + ".journal"));
      if (options_.resume) {
        KB_ASSIGN_OR_RETURN(files.state, files.journal->Take(target_, facts_.value("name", "")));
      } else {
        KB_RETURN_IF_ERROR(files.journal->Empty());
      }
    }
    KB_RETURN_IF_ERROR(Enter(start, &files));
    return &files;
  }

  // The journal first: what is not in it has not happened.
  static Status Enter(const Json& event, FamilyFiles* files) {
    if (files->journal != nullptr) {
      KB_RETURN_IF_ERROR(files->journal->Append(EventLine(event)));
    }
    return files->state.Apply(event);
  }

  Status MakeBundle(const SpaceProblem& problem) {
    const std::string& op = problem.problem.op_name;
    if (replaying() || bundles_.contains(op)) return Status();
    std::set<uint32_t> uses;
    for (const SpaceProblem* other : wanted_) {
      if (other->problem.op_name != op) continue;
      for (uint32_t use : UsesOf(*other)) uses.insert(use);
    }
    auto path = space_->PackedBundle(std::vector<uint32_t>(uses.begin(), uses.end()));
    if (!path.ok() && path.status().code() != StatusCode::kNotFound) return path.status();
    bundles_[op] = path.ok() ? *path : "";
    return Status();
  }

  // Names the candidates, and fails those that have no code.
  Result<int> EnterProblem(const SpaceProblem& problem, const Json& json, FamilyFiles* files) {
    KB_RETURN_IF_ERROR(MakeBundle(problem));
    const std::vector<uint32_t> uses = UsesOf(problem);
    const std::set<uint32_t> measured(uses.begin(), uses.end());
    std::vector<std::pair<std::string, std::string>> candidates;
    for (const SpaceCandidate& candidate : problem.candidates) {
      candidates.emplace_back(candidate.id,
                              replaying() ? kNoFingerprint : space_->FingerprintOf(candidate.use));
    }
    const int number = files->state.NumberOf(json);
    KB_RETURN_IF_ERROR(Enter(ProblemEvent(number, json, candidates), files));
    for (size_t i = 0; i < problem.candidates.size() && !replaying(); ++i) {
      const SpaceCandidate& candidate = problem.candidates[i];
      if (!measured.contains(candidate.use) || LogOf(*files, number).candidates[i].failed) continue;
      const std::string why = space_->FailureOf(candidate.use);
      if (why.empty()) continue;
      KB_RETURN_IF_ERROR(Enter(FailedEvent(number, candidate.id, -1,
                                           {"compile", why, space_->CompileCommand(candidate.use)}),
                               files));
    }
    return number;
  }

  static const ProblemLog& LogOf(const FamilyFiles& files, int number) {
    return files.state.problems()[static_cast<size_t>(number)].log;
  }

  std::string CommandFor(const Json& problem, const std::string& variant) const {
    std::vector<std::string> words = {"kbundle", "tune"};
    words.insert(words.end(), options_.space.paths.begin(), options_.space.paths.end());
    words.insert(words.end(),
                 {"--target", target_, "--problem", problem.dump(), "--only", variant});
    return ShellCommand(words);
  }

  bool OverBudget() const {
    return options_.budget.count() > 0 && Clock::now() - start_ > options_.budget;
  }

  Status MeasureOne(size_t number) {
    const SpaceProblem& problem = *wanted_[number];
    if (cancel_) {
      return Cancelled(
          fmt::format("stopped with {} of {} problems to go; the journal is kept, and "
                      "--resume goes on from there",
                      wanted_.size() - number, wanted_.size()));
    }
    if (OverBudget()) {
      report_.out_of_budget = true;
      ++report_.skipped;
      return Status();
    }
    reporter_.Progress(number, wanted_.size(), problem.problem.ToString());
    KB_ASSIGN_OR_RETURN(FamilyFiles * files, FilesOf(problem.family));
    const Json json = ProblemToJson(space_->outline(), problem.problem);
    KB_ASSIGN_OR_RETURN(const int entered, EnterProblem(problem, json, files));
    KB_RETURN_IF_ERROR(MeasureSteps(number, entered, json, files));
    measurer_->Drop(number);
    if (NextStep(LogOf(*files, entered)).kind == TuningStep::Kind::kDone) {
      ++report_.measured;
      return Enter(DoneEvent(entered), files);
    }
    report_.skipped += !cancel_;
    return Status();
  }

  Status MeasureSteps(size_t number, int entered, const Json& json, FamilyFiles* files) {
    bool loaded = false;
    while (!cancel_) {
      const TuningStep step = NextStep(LogOf(*files, entered));
      if (step.kind == TuningStep::Kind::kDone) return Status();
      if (!loaded) {
        const auto asked = Clock::now();
        const Status status = measurer_->Load(number, bundles_[wanted_[number]->problem.op_name]);
        report_.load_seconds += Seconds(Clock::now() - asked).count();
        if (!status.ok()) {
          Warn(fmt::format("{}: not tuned: {}", wanted_[number]->problem.ToString(),
                           status.message()));
          return Status();
        }
        loaded = true;
      }
      const std::string variant =
          LogOf(*files, entered).candidates[static_cast<size_t>(step.candidate)].variant;
      KB_RETURN_IF_ERROR(Enter(Measure(step, entered, json, variant), files));
    }
    return Status();
  }

  Json Measure(const TuningStep& step, int entered, const Json& json, const std::string& variant) {
    const bool check = step.kind == TuningStep::Kind::kCheck;
    const Measured measured =
        check ? measurer_->Check(variant) : measurer_->Time(variant, step.round, kSamplesPerRound);
    if (!measured.ok()) {
      return FailedEvent(entered, variant, check ? -1 : step.round,
                         {measured.kind, measured.message, CommandFor(json, variant)});
    }
    if (check) return CheckedEvent(entered, variant);
    return SamplesEvent(entered, variant, step.round, measured.ns, measured.state);
  }

  // What was measured now takes the place of what was there of the same problem and device.
  Status Finish(FamilyFiles* files) {
    std::vector<TuningRecord> made = Conclude(files->state);
    for (const JournalProblem& problem : files->state.problems()) Count(problem);
    for (const TuningRecord& record : made) records_.push_back(record);
    if (files->journal == nullptr) return Status();
    auto before = ReadRecords(files->records);
    if (!before.ok() && before.status().code() != StatusCode::kNotFound) return before.status();
    std::set<std::string> keys;
    for (const TuningRecord& record : made) keys.insert(record.Key());
    for (TuningRecord& record : before.ok() ? *before : std::vector<TuningRecord>()) {
      if (!keys.contains(record.Key())) made.push_back(std::move(record));
    }
    if (!made.empty()) {
      KB_RETURN_IF_ERROR(
          PublishFile(files->records, RecordsText(std::move(made)), Durability::kDisk));
      report_.files.push_back(files->records);
    }
    files->journal->Remove();
    return Status();
  }

  void Count(const JournalProblem& problem) {
    for (const CandidateLog& one : problem.log.candidates) {
      ++report_.candidates;
      if (!one.failed) continue;
      report_.failures.push_back({problem.problem.dump(), one.variant, one.failed->kind,
                                  one.failed->detail, one.failed->reproduce});
    }
  }

  void Warn(const std::string& text) {
    report_.warnings.push_back(text);
    reporter_.Warn(text);
  }

  void Summarize() {
    report_.device = facts_.value("name", "");
    SummarizeRecords(records_, &report_);
    if (report_.spread > kWideSpread) {
      Warn(
          fmt::format("half of the samples lie {:.1f} % apart: something else uses this device; "
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
  Json facts_;
  std::map<const Family*, FamilyFiles> files_;
  std::map<std::string, std::string> bundles_;  // paths by op; "" where nothing could be compiled
  std::vector<TuningRecord> records_;
  TuneReport report_;
};

}  // namespace

Result<TuneReport> Tune(const TuneOptions& options, TuneReporter& reporter,
                        const std::atomic<bool>& cancel) {
  return Tuner(options, &reporter, &cancel).Run();
}

}  // namespace kbundle::builder
