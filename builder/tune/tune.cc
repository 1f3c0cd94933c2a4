// One step, over and over: ask the schedule for the next measurement, take it, enter the event.
// What can fail for everybody comes before what takes long: options and manifests, then the device,
// then references and compilers, and only then the first launch.
#include "builder/tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "builder/problem/json.h"
#include "builder/record/journal.h"
#include "builder/record/protocol.h"
#include "builder/record/record.h"
#include "builder/record/schedule.h"
#include "builder/support/process.h"
#include "builder/tune/family.h"
#include "builder/tune/measurers.h"
#include "builder/tune/problems.h"
#include "builder/tune/revalidate.h"
#include "builder/tune/summary.h"
#include "builder/tune/target.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr char kNoFingerprint[] = "0000000000000000";  // of a replayed candidate
constexpr double kWideSpread = 0.05;  // of quartiles: something else uses the device

class Tuner {
 public:
  Tuner(const TuneOptions& options, TuneReporter* reporter, const std::atomic<bool>* cancel)
      : options_(options), reporter_(*reporter), cancel_(*cancel), start_(Clock::now()) {}

  Result<TuneReport> Run() {
    KB_RETURN_IF_ERROR(OpenSpace());
    KB_RETURN_IF_ERROR(options_.revalidate ? FindStaleProblems() : FindProblems());
    if (options_.revalidate && wanted_.empty()) return std::move(report_);
    KB_RETURN_IF_ERROR(StartMeasuring());
    KB_RETURN_IF_ERROR(MeasureAll());
    for (auto& [family, tune] : families_) KB_RETURN_IF_ERROR(Finish(tune.get()));
    Summarize();
    return std::move(report_);
  }

 private:
  bool replaying() const { return !options_.replay.empty(); }

  Status OpenSpace() {
    SpaceOptions options = options_.space;
    if (options.target == "host") options.target = HostDevice().ToString();
    options.python = options_.reference.python;
    target_ = options.target;
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(target_));
    if (target.kind == TargetKind::kHost) KB_RETURN_IF_ERROR(CheckCpu(target));
    KB_ASSIGN_OR_RETURN(space_, TuneSpace::Open(options));
    return Status();
  }

  Status FindProblems() {
    KB_ASSIGN_OR_RETURN(problems_, ProblemsToTune(options_, *space_, &report_.warnings));
    for (const std::string& warning : report_.warnings) reporter_.Warn(warning);
    for (const SpaceProblem& problem : problems_) wanted_.push_back(&problem);
    report_.problems = static_cast<int>(wanted_.size());
    if (!wanted_.empty()) return Status();
    return InvalidArgument(
        fmt::format("no problem of these manifests has a legal variant{} for {}; nothing to tune",
                    options_.only.empty() ? "" : " of that name", target_));
  }

  Status FindStaleProblems() {
    KB_ASSIGN_OR_RETURN(stale_, FindStale(space_.get(), options_.space.op, &report_.warnings));
    for (const std::string& warning : report_.warnings) reporter_.Warn(warning);
    for (const StaleProblem& one : stale_) wanted_.push_back(&one.problem);
    report_.problems = static_cast<int>(wanted_.size());
    return Status();
  }

  // Those of other devices are theirs to measure.
  void KeepOwnDevice() {
    const std::string device = measurers_.facts().value("name", "");
    for (const StaleProblem& one : stale_) {
      if (one.record.device_name() == device) continue;
      std::erase(wanted_, &one.problem);
      Warn(fmt::format("{}: its record is of {}: revalidate it there",
                       one.problem.problem.ToString(), one.record.device_name()));
    }
  }

  // Of what was measured of winner and default: the records that hold.
  std::vector<TuningRecord> Revalidate(const std::vector<TuningRecord>& measured) {
    std::vector<TuningRecord> holding;
    for (const TuningRecord& one : measured) {
      const auto before = std::find_if(stale_.begin(), stale_.end(), [&](const StaleProblem& old) {
        return old.record.Key() == one.Key();
      });
      if (before == stale_.end()) continue;  // of a tune before, and published by then
      if (auto record = Revalidated(before->record, one)) {
        ++report_.revalidated;
        holding.push_back(std::move(*record));
      } else {
        Warn(
            fmt::format("{} {}: {} does not win any more ({}); its record is left as it is, tune "
                        "the problem in full",
                        one.op, one.problem.dump(), before->record.winner, one.reason));
      }
    }
    return holding;
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
      KB_ASSIGN_OR_RETURN(measurers_, Measurers::Replay(options_.replay, options_.gpus, wanted_));
      return Status();
    }
    MeasurerOptions options = options_.measurer;
    options.sample_ns = kSampleNs;
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(target_));
    KB_ASSIGN_OR_RETURN(
        measurers_, Measurers::Start(options, options_.gpus, target, wanted_, &space_->outline()));
    for (const std::string& warning : measurers_.warnings()) Warn(warning);
    KeepOwnDevice();
    KB_ASSIGN_OR_RETURN(references_, References::Open(options_.reference, space_->outline()));
    references_->Plan(wanted_);
    measurers_.set_references(references_.get());
    std::vector<uint32_t> uses;
    for (const SpaceProblem* problem : wanted_) {
      for (uint32_t use : UsesOf(*problem)) uses.push_back(use);
    }
    return space_->StartCompiling(uses);
  }

  Result<FamilyTune*> TuneOf(const Family* family) {
    std::unique_ptr<FamilyTune>& tune = families_[family];
    if (tune != nullptr) return tune.get();
    std::string folder;
    if (options_.only.empty()) {
      folder =
          options_.out.empty() ? family->directory + "/tuning" : options_.out + "/" + family->name;
    }
    KB_ASSIGN_OR_RETURN(tune, FamilyTune::Open(folder, target_, measurers_.facts(),
                                               options_.revalidate ? ".revalidate" : ""));
    return tune.get();
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
  Result<int> EnterProblem(const SpaceProblem& problem, const Json& json, FamilyTune* tune) {
    KB_RETURN_IF_ERROR(MakeBundle(problem));
    const std::vector<uint32_t> uses = UsesOf(problem);
    const std::set<uint32_t> measured(uses.begin(), uses.end());
    std::vector<std::pair<std::string, std::string>> candidates;
    for (const SpaceCandidate& candidate : problem.candidates) {
      candidates.emplace_back(candidate.id,
                              replaying() ? kNoFingerprint : space_->FingerprintOf(candidate.use));
    }
    const int number = tune->state().NumberOf(json);
    KB_RETURN_IF_ERROR(tune->Enter(ProblemEvent(number, json, candidates, !options_.resume)));
    for (size_t i = 0; i < problem.candidates.size() && !replaying(); ++i) {
      const SpaceCandidate& candidate = problem.candidates[i];
      if (!measured.contains(candidate.use) || tune->LogOf(number).candidates[i].failed) continue;
      const std::string why = space_->FailureOf(candidate.use);
      if (why.empty()) continue;
      const std::string command = space_->CompileCommand(candidate.use);
      KB_RETURN_IF_ERROR(
          tune->Enter(FailedEvent(number, candidate.id, -1, {"compile", why, command})));
    }
    return number;
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

  // Each GPU takes the next problem when it is done with one. Everything but measuring itself is
  // done under the lock, by whichever thread.
  Status MeasureAll() {
    std::vector<std::thread> threads;
    std::latch finished(static_cast<std::ptrdiff_t>(measurers_.all().size()));
    for (const auto& measurer : measurers_.all()) {
      threads.emplace_back([this, &finished, one = measurer.get()] {
        MeasureOn(one);
        finished.arrive_and_wait();  // a child ends with the thread that started it
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failed_;
  }

  void MeasureOn(Measurer* measurer) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (next_ < wanted_.size() && failed_.ok()) {
      const Status status = MeasureOne(next_++, measurer, &lock);
      if (!status.ok()) failed_ = status;
    }
  }

  Status MeasureOne(size_t number, Measurer* measurer, std::unique_lock<std::mutex>* lock) {
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
    KB_ASSIGN_OR_RETURN(FamilyTune * tune, TuneOf(problem.family));
    const Json json = ProblemToJson(space_->outline(), problem.problem);
    KB_ASSIGN_OR_RETURN(const int entered, EnterProblem(problem, json, tune));
    KB_RETURN_IF_ERROR(MeasureSteps({number, entered, json, tune, measurer}, lock));
    measurer->Drop(number);
    if (NextStep(tune->LogOf(entered)).kind == TuningStep::Kind::kDone) {
      if (tune->LogOf(entered).Default() < 0) {
        report_.unanswered.push_back(problem.problem.ToString() + ": no candidate is right");
      }
      ++report_.measured;
      return tune->Enter(DoneEvent(entered));
    }
    report_.skipped += !cancel_;
    return Status();
  }

  // A problem that is being measured: its place in wanted_ and in the journal, and by whom.
  struct Measuring {
    size_t number;
    int entered;
    const Json& json;
    FamilyTune* tune;
    Measurer* measurer;
  };

  Status MeasureSteps(const Measuring& at, std::unique_lock<std::mutex>* lock) {
    bool loaded = false;
    while (!cancel_) {
      const TuningStep step = NextStep(at.tune->LogOf(at.entered));
      if (step.kind == TuningStep::Kind::kDone) return Status();
      if (!loaded) {
        const Status status = Load(at, lock);
        if (!status.ok()) {
          const std::string& problem = wanted_[at.number]->problem.ToString();
          Warn(fmt::format("{}: not tuned: {}", problem, status.message()));
          report_.unanswered.push_back(problem + ": not tuned, for the reason above");
          return Status();
        }
        loaded = true;
      }
      const std::string variant =
          at.tune->LogOf(at.entered).candidates[static_cast<size_t>(step.candidate)].variant;
      lock->unlock();
      const Json event = Measure(step, at, variant);
      lock->lock();
      KB_RETURN_IF_ERROR(at.tune->Enter(event));
    }
    return Status();
  }

  Status Load(const Measuring& at, std::unique_lock<std::mutex>* lock) {
    const std::string bundle = bundles_[wanted_[at.number]->problem.op_name];
    const auto asked = Clock::now();
    lock->unlock();
    const Status status = at.measurer->Load(at.number, bundle);
    lock->lock();
    report_.load_seconds += Seconds(Clock::now() - asked).count();
    return status;
  }

  Json Measure(const TuningStep& step, const Measuring& at, const std::string& variant) const {
    const bool check = step.kind == TuningStep::Kind::kCheck;
    const Measured measured = check ? at.measurer->Check(variant)
                                    : at.measurer->Time(variant, step.round, kSamplesPerRound);
    if (!measured.ok()) {
      return FailedEvent(at.entered, variant, check ? -1 : step.round,
                         {measured.kind, measured.message, CommandFor(at.json, variant)});
    }
    if (check) return CheckedEvent(at.entered, variant, measured.workspace);
    return SamplesEvent(at.entered, variant, step.round, measured.ns, measured.state);
  }

  Status Finish(FamilyTune* tune) {
    for (const JournalProblem& problem : tune->state().problems()) Count(problem);
    std::vector<TuningRecord> made = Conclude(tune->state());
    if (options_.revalidate) made = Revalidate(made);
    records_.insert(records_.end(), made.begin(), made.end());
    KB_ASSIGN_OR_RETURN(const std::string written, tune->Publish(made));
    if (!written.empty()) report_.files.push_back(written);
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
    report_.device = measurers_.facts().value("name", "");
    SummarizeRecords(records_, &report_);
    if (report_.spread > kWideSpread) {
      Warn(
          fmt::format("half of the samples lie {:.1f} % apart: something else uses this device; "
                      "tune again when it is quiet",
                      100 * report_.spread));
    }
    report_.restarts = measurers_.restarts();
    report_.seconds = Seconds(Clock::now() - start_).count();
  }

  const TuneOptions& options_;
  TuneReporter& reporter_;
  const std::atomic<bool>& cancel_;
  const Clock::time_point start_;
  std::string target_;
  std::unique_ptr<TuneSpace> space_;
  std::vector<SpaceProblem> problems_;
  std::vector<StaleProblem> stale_;  // with --revalidate
  std::vector<const SpaceProblem*> wanted_;
  std::unique_ptr<References> references_;
  Measurers measurers_;
  std::mutex mutex_;  // while they measure: of what follows, the space and the reporter
  size_t next_ = 0;   // of wanted_
  Status failed_;
  std::map<const Family*, std::unique_ptr<FamilyTune>> families_;
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
