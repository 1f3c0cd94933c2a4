// The device is asked for before anything is compiled, compilation runs ahead of the launches, and
// a problem's references are dropped when its candidates are done. A variant that failed once is
// not launched again. Facts are written by the digest of code: what was wrong under one variant is
// right under none.
#include "builder/conformance/target.h"

#include <fmt/format.h>

#include <algorithm>

#include "builder/problem/file.h"
#include "builder/problem/json.h"
#include "builder/support/process.h"
#include "builder/tune/target.h"
#include "kbundle/target.h"

namespace kbundle::builder {

ConformanceTarget::ConformanceTarget(const ConformanceOptions& options, const std::string& target,
                                     TuneReporter* reporter, const std::atomic<bool>* cancel)
    : options_(options), target_(target), reporter_(*reporter), cancel_(*cancel) {}

ConformanceTarget::~ConformanceTarget() = default;

Status ConformanceTarget::Run() {
  KB_RETURN_IF_ERROR(OpenSpace());
  KB_RETURN_IF_ERROR(FindDevice());  // before the problems, which take minutes for many algorithms
  KB_RETURN_IF_ERROR(FindProblems());
  KB_RETURN_IF_ERROR(StartCompiling());
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (cancel_) return Cancelled("stopped; nothing was written");
    reporter_.Progress(i, wanted_.size(), wanted_[i]->problem.ToString() + " on " + target_);
    KB_RETURN_IF_ERROR(Launch(i));
    measurer_->Drop(i);
  }
  FindUnlaunched();
  return Status();
}

Status ConformanceTarget::OpenSpace() {
  KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(target_));
  cuda_ = target.kind != TargetKind::kHost;
  if (!cuda_) KB_RETURN_IF_ERROR(CheckCpu(target));
  SpaceOptions options = options_.space;
  options.target = target_;
  options.asking = true;
  options.python = options_.reference.python;
  KB_ASSIGN_OR_RETURN(space_, TuneSpace::Open(options));
  if (space_->passed_over() > 0) {
    warnings_.push_back(PassedOver(space_->passed_over(), options.add));
  }
  return Status();
}

Status ConformanceTarget::FindDevice() {
  MeasurerOptions options = options_.measurer;
  options.cuda = cuda_;
  options.rotate = false;
  measurer_ = std::make_unique<ChildMeasurer>(options, wanted_, &space_->outline());
  KB_ASSIGN_OR_RETURN(const nlohmann::json facts, measurer_->Facts());
  KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(target_));
  if (cuda_) KB_RETURN_IF_ERROR(CheckGpu(target, facts));
  device_ = facts.value("name", "");
  return Status();
}

Status ConformanceTarget::FindProblems() {
  KB_ASSIGN_OR_RETURN(problems_, ProblemsToTest(*space_, options_.choice));
  outcomes_.resize(space_->work().variants.size());
  for (uint32_t use = 0; use < outcomes_.size(); ++use) {
    outcomes_[use].variant = space_->LabelOf(use);
  }
  for (const SpaceProblem& problem : problems_) {
    if (!problem.family->reference.empty()) wanted_.push_back(&problem);
  }
  return Status();
}

Status ConformanceTarget::StartCompiling() {
  KB_ASSIGN_OR_RETURN(references_, References::Open(options_.reference, space_->outline()));
  references_->Plan(wanted_);
  measurer_->set_references(references_.get());
  std::vector<uint32_t> uses;
  for (const SpaceProblem* problem : wanted_) {
    for (const SpaceCandidate& one : problem->candidates) uses.push_back(one.use);
  }
  return space_->StartCompiling(uses);
}

// Of all variants that are launched, so that each op is packed once.
Result<std::string> ConformanceTarget::BundleOf(const std::string& op) {
  const auto found = bundles_.find(op);
  if (found != bundles_.end()) return found->second;
  std::set<uint32_t> uses;
  for (const SpaceProblem* problem : wanted_) {
    if (problem->problem.op_name != op) continue;
    for (const SpaceCandidate& one : problem->candidates) uses.insert(one.use);
  }
  auto path = space_->PackedBundle(std::vector<uint32_t>(uses.begin(), uses.end()));
  if (!path.ok() && path.status().code() != StatusCode::kNotFound) return path.status();
  for (uint32_t use : uses) {
    const std::string why = space_->FailureOf(use);
    if (!why.empty()) Fail(use, "compile", why, space_->CompileCommand(use));
  }
  return bundles_[op] = path.ok() ? *path : "";
}

Status ConformanceTarget::Launch(size_t number) {
  const SpaceProblem& problem = *wanted_[number];
  KB_ASSIGN_OR_RETURN(const std::string bundle, BundleOf(problem.problem.op_name));
  bool loaded = false;
  for (const SpaceCandidate& candidate : problem.candidates) {
    if (!outcomes_[candidate.use].right()) continue;  // its first failure says enough
    if (!loaded) {
      const Status status = measurer_->Load(number, bundle);
      if (!status.ok()) {
        for (const SpaceCandidate& one : problem.candidates) {
          Fail(one.use, "reference", status.message(), CommandFor(problem, one.id));
        }
        return Status();
      }
      loaded = true;
    }
    Check(problem, candidate);
  }
  return Status();
}

void ConformanceTarget::Check(const SpaceProblem& problem, const SpaceCandidate& candidate) {
  const Measured measured = measurer_->Check(candidate.id);
  VariantOutcome& outcome = outcomes_[candidate.use];
  if (measured.ok()) {
    ++outcome.problems;
    outcome.worst = std::max(outcome.worst, measured.worst);
  } else if (measured.kind == "refused") {
    refused_[candidate.use] = problem.problem.ToString() + ": " + measured.message;
  } else {
    Fail(candidate.use, measured.kind, problem.problem.ToString() + ": " + measured.message,
         CommandFor(problem, candidate.id));
  }
}

void ConformanceTarget::Fail(uint32_t use, const std::string& kind, const std::string& message,
                             const std::string& command) {
  VariantOutcome& outcome = outcomes_[use];
  if (!outcome.right()) return;
  outcome.kind = kind;
  outcome.message = message;
  outcome.command = command;
}

void ConformanceTarget::FindUnlaunched() {
  const std::vector<std::string>& only = options_.choice.only;
  if (!options_.choice.problem.empty() && only.empty()) return;  // it is for whom it is for
  for (uint32_t use = 0; use < outcomes_.size(); ++use) {
    const VariantOutcome& outcome = outcomes_[use];
    if (outcome.problems > 0 || !outcome.right()) continue;
    const Work::OpRef& op = space_->work().ops[space_->work().variants[use].op];
    const bool asked = only.empty()
                           ? space_->options().op.empty() || op.op->name == space_->options().op
                           : std::find(only.begin(), only.end(), outcome.variant) != only.end();
    if (!asked) continue;
    if (op.family->reference.empty()) {
      Fail(use, "reference",
           op.family->manifest_path + ": [family] names no reference to compare with", "");
    } else if (const auto refused = refused_.find(use); refused != refused_.end()) {
      Fail(use, "never", "the library refuses it: " + refused->second, "");
    } else {
      Fail(use, "never", WhyUnreached(*space_, use), "");
    }
  }
}

std::string ConformanceTarget::CommandFor(const SpaceProblem& problem,
                                          const std::string& variant) const {
  std::vector<std::string> words = {"kbundle", "test"};
  words.insert(words.end(), options_.space.paths.begin(), options_.space.paths.end());
  const std::string json = ProblemToJson(space_->outline(), problem.problem).dump();
  words.insert(words.end(), {"--target", target_, "--problem", json, "--only", variant, "--seed",
                             std::to_string(options_.reference.seed)});
  return ShellCommand(words);
}

// A GPU by its name. A CPU is of its level and of those below it: code of a level runs alike on all
// that have it.
std::set<std::string> ConformanceTarget::DeviceNames() const {
  if (cuda_) return {device_};
  std::set<std::string> names;
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    if (level >= target_ && level <= HostDevice().ToString()) names.insert(level);
  }
  return names;
}

Status ConformanceTarget::WriteRanOn(std::set<std::string>* files) const {
  std::map<const Family*, RanOnNews> news;
  for (uint32_t use = 0; use < outcomes_.size(); ++use) {
    const bool launched = outcomes_[use].problems > 0 || !outcomes_[use].right();
    if (options_.note_only && !launched) continue;
    RanOnNews& one = news[space_->work().ops[space_->work().variants[use].op].family];
    one.devices = DeviceNames();
    for (const std::string& digest : space_->DigestsOf(use)) {
      (outcomes_[use].right() ? one.right : one.wrong).insert(digest);
    }
  }
  for (auto& [family, one] : news) {
    for (const std::string& digest : one.wrong) one.right.erase(digest);
    KB_ASSIGN_OR_RETURN(const std::string path, UpdateRanOn(*family, one));
    if (!path.empty()) files->insert(path);
  }
  return Status();
}

}  // namespace kbundle::builder
