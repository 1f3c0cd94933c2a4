// Only records with other code are worth a GPU, and fingerprints need code: so all that the records
// name is compiled first, and then those that changed are kept.
#include "builder/tune/revalidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "builder/pack/embed_records.h"

namespace kbundle::builder {
namespace {

constexpr std::string_view kAlone = "; winner and default alone, measured again for other code";

bool IsEither(const TuningRecord& record, const std::string& id) {
  return id == record.winner || id == record.base;
}

// With the candidates winner and default; nothing where one of them cannot be measured.
Result<std::optional<StaleProblem>> Bind(const TuneSpace& space, const TuningRecord& record) {
  KB_ASSIGN_OR_RETURN(const Problem problem, ProblemOf(record, space.outline()));
  KB_ASSIGN_OR_RETURN(SpaceProblem made, space.MakeProblem(problem));
  std::erase_if(made.candidates,
                [&](const SpaceCandidate& one) { return !IsEither(record, one.id); });
  const size_t wanted = record.winner == record.base ? 1 : 2;
  if (made.candidates.size() < wanted) return std::optional<StaleProblem>();
  return std::optional<StaleProblem>({std::move(made), record});
}

bool HasOtherCode(const TuneSpace& space, const StaleProblem& one) {
  return std::any_of(one.problem.candidates.begin(), one.problem.candidates.end(),
                     [&](const SpaceCandidate& candidate) {
                       return space.FingerprintOf(candidate.use) !=
                              one.record.Find(candidate.id)->fingerprint;
                     });
}

}  // namespace

Result<std::vector<StaleProblem>> FindStale(TuneSpace* space, const std::string& op,
                                            std::vector<std::string>* warnings) {
  KB_ASSIGN_OR_RETURN(const std::vector<FoundRecords> found, FindRecords(space->families()));
  const std::string target = space->work().targets[0].ToString();
  std::vector<StaleProblem> problems;
  std::set<uint32_t> uses;
  for (const FoundRecords& file : found) {
    for (const TuningRecord& record : file.records) {
      if (record.target != target || (!op.empty() && record.op != op)) continue;
      auto bound = Bind(*space, record);
      if (!bound.ok() || !*bound) {
        warnings->push_back(
            fmt::format("{}: {} {}: {}; tune it", file.path, record.op, record.problem.dump(),
                        bound.ok() ? "winner or default is gone" : bound.status().message()));
        continue;
      }
      for (const SpaceCandidate& one : (**bound).problem.candidates) uses.insert(one.use);
      problems.push_back(std::move(**bound));
    }
  }
  if (problems.empty()) return problems;
  const std::vector<uint32_t> wanted(uses.begin(), uses.end());
  KB_RETURN_IF_ERROR(space->StartCompiling(wanted));
  KB_RETURN_IF_ERROR(space->PackedBundle(wanted).status());
  std::erase_if(problems, [&](const StaleProblem& one) { return !HasOtherCode(*space, one); });
  return problems;
}

std::optional<TuningRecord> Revalidated(const TuningRecord& before, const TuningRecord& measured) {
  if (measured.winner != before.winner || measured.base != before.base) return std::nullopt;
  TuningRecord record = before;
  record.device = measured.device;
  record.state = measured.state;
  record.protocol = measured.protocol;
  if (measured.winner != measured.base) record.reason = measured.reason;
  if (!record.reason.ends_with(kAlone)) record.reason += kAlone;
  for (RecordCandidate& candidate : record.candidates) {
    const RecordCandidate* fresh = measured.Find(candidate.variant);
    if (fresh != nullptr) {
      candidate = *fresh;
    } else {
      candidate.earlier = true;
    }
  }
  return record;
}

}  // namespace kbundle::builder
