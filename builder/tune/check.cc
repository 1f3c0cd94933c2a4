// For each record: can its device have run its target, is its problem still one of the op, are its
// candidates still the legal ones, and is their code what was measured? And for each problem: has
// it a record? All of it without measuring; only code that records name is compiled.
#include "builder/tune/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "builder/compile/check_variants.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/pack/embed_records.h"
#include "builder/record/protocol.h"
#include "builder/tune/problems.h"
#include "builder/tune/space.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

constexpr char kUsualTarget[] = "sm_90a";

// A record, with its problem as today's interface sees it.
struct Bound {
  const TuningRecord* record;
  std::string name;  // for messages
  Result<SpaceProblem> problem;
};

// Why the device that a record names cannot have run its target; "" when it can, or is not known.
std::string WhyRefused(const TuningRecord& record, const Target& target) {
  const auto said = record.device.find("target");
  if (said == record.device.end() || !said->is_string()) return "";
  const Result<Device> device = DeviceFromTargetName(said->get<std::string>());
  if (!device.ok() || target.Fit(*device) != 0) return "";
  return fmt::format("{} is {}, which cannot run {}; tune on a device that can",
                     record.device_name(), said->get<std::string>(), record.target);
}

class Check {
 public:
  Check(const TuneCheckOptions& options, TuneSpace* space, const std::vector<FoundRecords>& found)
      : options_(options), space_(*space) {
    result_.target = space->work().targets[0].ToString();
    for (uint32_t i = 0; i < space->work().variants.size(); ++i) uses_[space->LabelOf(i)] = i;
    for (const FoundRecords& file : found) Bind(file);
  }

  Result<TargetCheck> Run() {
    KB_RETURN_IF_ERROR(FindMissing());
    KB_RETURN_IF_ERROR(Compile());
    for (const Bound& bound : bound_) {
      StaleRecord stale{bound.name, Findings(bound)};
      if (!stale.why.empty()) result_.stale.push_back(std::move(stale));
    }
    return std::move(result_);
  }

 private:
  void Bind(const FoundRecords& file) {
    std::set<std::string> drivers;
    std::set<int> protocols;
    for (const TuningRecord& record : file.records) {
      if (record.target != result_.target) continue;
      if (!options_.op.empty() && record.op != options_.op) continue;
      ++result_.records;
      const std::string name = fmt::format("{}: {} {} ({})", file.path, record.op,
                                           record.problem.dump(), record.device_name());
      const std::string refused = WhyRefused(record, space_.work().targets[0]);
      if (!refused.empty()) {
        result_.refused.push_back({name, {refused}});
        continue;
      }
      const auto driver = record.device.find("driver");
      if (driver != record.device.end()) drivers.insert(driver->dump());
      protocols.insert(record.protocol);
      bound_.push_back({&record, name, ProblemFor(record)});
    }
    if (drivers.size() > 1) {
      result_.notes.push_back(fmt::format("{}: its records are of {} drivers ({}); each is used",
                                          file.path, drivers.size(), fmt::join(drivers, ", ")));
    }
    protocols.erase(kProtocol);
    for (int protocol : protocols) {
      result_.notes.push_back(fmt::format(
          "{}: it has records of protocol {}, this kbundle measures by {}; each is used", file.path,
          protocol, kProtocol));
    }
  }

  Result<SpaceProblem> ProblemFor(const TuningRecord& record) const {
    KB_ASSIGN_OR_RETURN(const Problem problem, ProblemOf(record, space_.outline()));
    return space_.MakeProblem(problem);
  }

  Status FindMissing() {
    std::set<std::string> recorded;
    std::set<const Family*> tuned;
    for (const Bound& bound : bound_) {
      if (!bound.problem.ok()) continue;
      recorded.insert(KeyOf(*bound.problem));
      tuned.insert(bound.problem->family);
    }
    KB_ASSIGN_OR_RETURN(const std::vector<SpaceProblem> listed, Wanted());
    std::set<std::string> seen;
    for (const SpaceProblem& one : listed) {
      // Nothing to measure, or nothing to choose from.
      const bool idle = one.candidates.size() < 2 || one.problem.AllResultsEmpty();
      if (idle || one.family->reference.empty() || !seen.insert(KeyOf(one)).second) continue;
      if (!tuned.empty() && !tuned.contains(one.family)) {
        ++result_.untuned[one.family->name];
        continue;
      }
      ++result_.problems;
      if (!recorded.contains(KeyOf(one))) result_.missing.push_back(one.problem.ToString());
    }
    return Status();
  }

  // Those of the file, as a tune would take them; else what the manifests list.
  Result<std::vector<SpaceProblem>> Wanted() {
    TuneOptions options;
    options.space.op = options_.op;
    options.problems_file = options_.problems_file;
    return AllProblems(options, space_, &result_.notes);
  }

  static std::string KeyOf(const SpaceProblem& one) {
    return one.problem.op_name + one.problem.key;
  }

  // The code that the records speak of, and no other.
  Status Compile() {
    std::set<uint32_t> uses;
    for (const Bound& bound : bound_) {
      for (const RecordCandidate& candidate : bound.record->candidates) {
        const auto use = uses_.find(candidate.variant);
        if (use != uses_.end() && !candidate.fingerprint.empty()) uses.insert(use->second);
      }
    }
    if (uses.empty()) return Status();
    const std::vector<uint32_t> wanted(uses.begin(), uses.end());
    KB_RETURN_IF_ERROR(space_.StartCompiling(wanted));
    const auto packed = space_.PackedBundle(wanted);
    if (packed.ok() || packed.status().code() == StatusCode::kNotFound) return Status();
    return packed.status();
  }

  std::vector<std::string> Findings(const Bound& bound) {
    if (!bound.problem.ok()) {
      return {"its problem is refused by now: " + bound.problem.status().message()};
    }
    const TuningRecord& record = *bound.record;
    std::vector<std::string> why;
    std::set<std::string> legal;
    for (const SpaceCandidate& one : bound.problem->candidates) {
      legal.insert(one.id);
      if (record.Find(one.id) == nullptr) why.push_back("candidate " + one.id + " is new");
    }
    for (const RecordCandidate& one : record.candidates) {
      const char* role = one.variant == record.winner ? "winner"
                         : one.variant == record.base ? "default"
                                                      : "candidate";
      const std::string what = WhatChanged(one, legal);
      if (!what.empty()) why.push_back(fmt::format("{} {} {}", role, one.variant, what));
    }
    return why;
  }

  std::string WhatChanged(const RecordCandidate& one, const std::set<std::string>& legal) {
    const auto use = uses_.find(one.variant);
    if (use == uses_.end()) return "is gone";
    if (!legal.contains(one.variant)) return "is not legal for this problem any more";
    if (one.fingerprint.empty()) return "";  // it had no code, or was not measured
    if (one.earlier) return "";              // it lost before the code changed
    const std::string now = space_.FingerprintOf(use->second);
    if (now == one.fingerprint) return "";
    if (now.empty()) return "does not compile by now: " + space_.FailureOf(use->second);
    return fmt::format("has other code by now (fingerprint {}, was {})", now, one.fingerprint);
  }

  const TuneCheckOptions& options_;
  TuneSpace& space_;
  std::map<std::string, uint32_t> uses_;
  std::vector<Bound> bound_;
  TargetCheck result_;
};

// Those to look at, sorted.
std::set<std::string> TargetsOf(const TuneCheckOptions& options,
                                const std::vector<FoundRecords>& found) {
  std::set<std::string> targets;
  if (!options.target.empty()) {
    targets.insert(options.target == "host" ? HostDevice().ToString() : options.target);
  } else {
    for (const FoundRecords& file : found) {
      for (const TuningRecord& record : file.records) targets.insert(record.target);
    }
    if (targets.empty()) targets.insert(kUsualTarget);
  }
  return targets;
}

}  // namespace

Result<std::vector<TargetCheck>> CheckTuning(const TuneCheckOptions& options) {
  KB_ASSIGN_OR_RETURN(const std::vector<std::string> manifests, FindManifests(options.paths));
  std::vector<Family> families;
  for (const std::string& manifest : manifests) {
    KB_ASSIGN_OR_RETURN(Family family, ReadManifest(manifest));
    families.push_back(std::move(family));
  }
  KB_ASSIGN_OR_RETURN(const std::vector<FoundRecords> found, FindRecords(families));
  const std::set<std::string> targets = TargetsOf(options, found);
  std::vector<TargetCheck> checks;
  for (const std::string& target : targets) {
    SpaceOptions space_options;
    space_options.paths = options.paths;
    space_options.target = target;
    space_options.cache_dir = options.cache_dir;
    space_options.jobs = options.jobs;
    space_options.op = options.op;
    space_options.python = options.python;
    KB_ASSIGN_OR_RETURN(const std::unique_ptr<TuneSpace> space, TuneSpace::Open(space_options));
    KB_ASSIGN_OR_RETURN(TargetCheck check, Check(options, space.get(), found).Run());
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace kbundle::builder
