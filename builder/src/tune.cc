#include "tune.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "bench_rounds.h"
#include "files.h"
#include "listed_problems.h"
#include "problem_json.h"
#include "process.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

class Tuner {
 public:
  Tuner(const TuneOptions& options, TuneReporter* reporter, const std::atomic<bool>* cancel)
      : options_(options), reporter_(*reporter), cancel_(*cancel) {}

  Result<TuneReport> Run() {
    const auto start = Clock::now();
    KB_RETURN_IF_ERROR(OpenSpace());
    KB_RETURN_IF_ERROR(FindProblems());
    KB_RETURN_IF_ERROR(StartMeasuring());
    KB_RETURN_IF_ERROR(OpenJournals());
    KB_RETURN_IF_ERROR(MeasureAll());
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    report_.seconds = elapsed.count();
    return std::move(report_);
  }

 private:
  Status OpenSpace() {
    SpaceOptions options = options_.space;
    if (options.target == "host") options.target = HostDevice().ToString();
    KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(options.target));
    cuda_ = target.kind != TargetKind::kHost;
    KB_ASSIGN_OR_RETURN(space_, TuneSpace::Open(options));
    return Status();
  }

  Status FindProblems() {
    if (options_.problem.empty() && options_.problems_file.empty()) {
      KB_ASSIGN_OR_RETURN(problems_, space_->ListedProblems());
    } else {
      std::string text = options_.problem;
      if (text.empty()) {
        KB_ASSIGN_OR_RETURN(text, ReadFile(options_.problems_file));
      }
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        KB_ASSIGN_OR_RETURN(
            const Problem problem,
            ProblemFromJson(space_->outline(), Json::parse(line, nullptr, false)));
        if (!options_.space.op.empty() && problem.op_name != options_.space.op) continue;
        KB_ASSIGN_OR_RETURN(SpaceProblem made, space_->MakeProblem(problem));
        problems_.push_back(std::move(made));
      }
    }
    for (SpaceProblem& problem : problems_) {
      if (!options_.only.empty()) {
        std::erase_if(problem.candidates, [this](const SpaceCandidate& candidate) {
          return std::find(options_.only.begin(), options_.only.end(), candidate.id) ==
                 options_.only.end();
        });
      }
      if (!problem.candidates.empty() && !problem.problem.AllResultsEmpty()) {
        wanted_.push_back(&problem);
      }
    }
    return Status();
  }

  Status StartMeasuring() {
    MeasurerOptions options = options_.measurer;
    options.cuda = cuda_;
    KB_ASSIGN_OR_RETURN(references_, References::Open(options_.reference, space_->outline()));
    references_->Plan(wanted_);
    measurer_ =
        std::make_unique<ChildMeasurer>(options, references_.get(), wanted_, &space_->outline());
    KB_ASSIGN_OR_RETURN(facts_, measurer_->Facts());
    std::vector<uint32_t> uses;
    for (const SpaceProblem* problem : wanted_) {
      for (const SpaceCandidate& candidate : problem->candidates) uses.push_back(candidate.use);
    }
    return space_->StartCompiling(uses);
  }

  Status OpenJournals() { return Status(); }

  Status MeasureAll() {
    for (size_t i = 0; i < wanted_.size() && !cancel_; ++i) {
      reporter_.Progress(i, wanted_.size(), wanted_[i]->problem.ToString());
      KB_RETURN_IF_ERROR(Measure(i));
      measurer_->Drop(i);
    }
    return Status();
  }

  Result<std::string> BundleOf(const SpaceProblem& problem) {
    const auto found = bundles_.find(problem.problem.op_name);
    if (found != bundles_.end()) return found->second;
    std::vector<uint32_t> uses;
    for (const SpaceProblem* other : wanted_) {
      if (other->problem.op_name != problem.problem.op_name) continue;
      for (const SpaceCandidate& candidate : other->candidates) {
        if (std::find(uses.begin(), uses.end(), candidate.use) == uses.end())
          uses.push_back(candidate.use);
      }
    }
    KB_ASSIGN_OR_RETURN(const std::string path, space_->PackedBundle(uses));
    bundles_[problem.problem.op_name] = path;
    return path;
  }

  Status Measure(size_t number) {
    const SpaceProblem& problem = *wanted_[number];
    KB_ASSIGN_OR_RETURN(const std::string bundle, BundleOf(problem));
    const Status loaded = measurer_->Load(number, bundle);
    if (!loaded.ok()) {
      reporter_.Warn(loaded.message());
      return Status();
    }
    for (const SpaceCandidate& candidate : problem.candidates) {
      if (const std::string why = space_->FailureOf(candidate.use); !why.empty()) {
        reporter_.Note(candidate.id + ": compile: " + why);
        continue;
      }
      Measured measured = measurer_->Check(candidate.id);
      if (!measured.ok()) {
        reporter_.Note(candidate.id + ": " + measured.kind + ": " + measured.message);
        continue;
      }
      const double worst = measured.worst;
      measured = measurer_->Time(candidate.id, 0, 5);
      if (!measured.ok()) {
        reporter_.Note(candidate.id + ": " + measured.kind + ": " + measured.message);
        continue;
      }
      reporter_.Note(fmt::format("{} {} {:.3g} {:.1f} us", problem.problem.ToString(), candidate.id,
                                 worst, Median(measured.ns) / 1e3));
    }
    return Status();
  }

  const TuneOptions& options_;
  TuneReporter& reporter_;
  const std::atomic<bool>& cancel_;
  bool cuda_ = false;
  std::unique_ptr<TuneSpace> space_;
  std::vector<SpaceProblem> problems_;
  std::vector<const SpaceProblem*> wanted_;
  std::unique_ptr<References> references_;
  std::unique_ptr<Measurer> measurer_;
  Json facts_;
  std::map<std::string, std::string> bundles_;
  TuneReport report_;
};

}  // namespace

Result<TuneReport> Tune(const TuneOptions& options, TuneReporter& reporter,
                        const std::atomic<bool>& cancel) {
  return Tuner(options, &reporter, &cancel).Run();
}

}  // namespace kbundle::builder
