// With a budget the end may come at any problem, so ops take turns: the first problem of each, then
// the second of each.
#include "builder/tune/problems.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "builder/problem/file.h"

namespace kbundle::builder {
namespace {

Result<std::vector<SpaceProblem>> NamedProblems(const TuneOptions& options, const TuneSpace& space,
                                                std::vector<std::string>* warnings) {
  const Bundle& bundle = space.outline();
  int passed_over = 0;
  KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems,
                      options.problem.empty()
                          ? ReadProblemFile(options.problems_file, bundle, &passed_over)
                          : ParseProblems(options.problem, "--problem", bundle));
  if (passed_over > 0) warnings->push_back(PassedOver(passed_over, options.problems_file));
  std::vector<SpaceProblem> named;
  for (const Problem& problem : problems) {
    if (!options.space.op.empty() && problem.op_name != options.space.op) continue;
    KB_ASSIGN_OR_RETURN(SpaceProblem made, space.MakeProblem(problem));
    named.push_back(std::move(made));
  }
  return named;
}

void ChooseCandidates(const std::vector<std::string>& only, SpaceProblem* problem) {
  if (only.empty()) return;
  std::erase_if(problem->candidates, [&only](const SpaceCandidate& candidate) {
    return std::find(only.begin(), only.end(), candidate.id) == only.end();
  });
}

// The first of every op, then the second of every op.
std::vector<SpaceProblem> SpreadOverOps(std::vector<SpaceProblem> problems) {
  std::map<std::string, int> seen;
  std::multimap<int, SpaceProblem> turns;
  for (SpaceProblem& problem : problems) {
    const int turn = seen[problem.problem.op_name]++;
    turns.emplace(turn, std::move(problem));
  }
  std::vector<SpaceProblem> spread;
  for (auto& [turn, problem] : turns) spread.push_back(std::move(problem));
  return spread;
}

}  // namespace

Result<std::vector<SpaceProblem>> AllProblems(const TuneOptions& options, const TuneSpace& space,
                                              std::vector<std::string>* warnings) {
  if (!options.problem.empty() || !options.problems_file.empty()) {
    return NamedProblems(options, space, warnings);
  }
  return options.held_out ? space.HeldOutProblems() : space.ListedProblems();
}

Result<std::vector<SpaceProblem>> ProblemsToTune(const TuneOptions& options, const TuneSpace& space,
                                                 std::vector<std::string>* warnings) {
  KB_ASSIGN_OR_RETURN(std::vector<SpaceProblem> problems, AllProblems(options, space, warnings));
  std::set<std::string> keys;
  std::vector<SpaceProblem> wanted;
  for (SpaceProblem& problem : problems) {
    ChooseCandidates(options.only, &problem);
    if (problem.candidates.empty() || problem.problem.AllResultsEmpty()) continue;
    if (problem.family->reference.empty() && options.replay.empty()) {
      warnings->push_back(problem.family->manifest_path +
                          ": no reference, so nothing of it can be tuned");
      continue;
    }
    if (keys.insert(problem.problem.op_name + problem.problem.key).second) {
      wanted.push_back(std::move(problem));
    }
  }
  return options.budget.count() > 0 ? SpreadOverOps(std::move(wanted)) : std::move(wanted);
}

}  // namespace kbundle::builder
