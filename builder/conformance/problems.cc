// All problems on all variants would take hours, and one problem each would miss the edges. So all
// are tried in outline, where legality costs nothing, sorted by size, and each variant gets the
// smallest, the largest and some between, listed and derived apart. A large problem is taken only
// by variants that nothing smaller reaches: its reference is computed in float64.
#include "builder/conformance/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "builder/problem/derived.h"
#include "builder/problem/file.h"
#include "builder/problem/listed.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/key.h"
#include "kbundle/nearest.h"
#include "kbundle/select.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

constexpr size_t kListed = 8, kDerived = 16;     // problems of a variant, at most
constexpr int64_t kDerivedElements = 1 << 20;    // of an operand
constexpr int64_t kUsualElements = 1 << 24;      // beyond it only what nothing smaller reaches
constexpr int64_t kLargestElements = 1ll << 28;  // a reference takes 8 bytes and more of each

int64_t ElementsOf(const Problem& problem) {
  int64_t elements = 0;
  for (const TensorSpec& operand : problem.operands) elements += operand.elements();
  for (const TensorSpec& result : problem.results) elements += result.elements();
  return elements;
}

struct Tried {
  SpaceProblem problem;
  int64_t elements = 0;
  bool listed = false;
};

class Chooser {
 public:
  explicit Chooser(const TuneSpace& space) : space_(space) {}

  Status TryAll(const std::string& op) {
    for (uint32_t number = 0; number < space_.work().ops.size(); ++number) {
      const Op& declared = *space_.work().ops[number].op;
      if (op.empty() || op == declared.name) KB_RETURN_IF_ERROR(TryOp(number, declared));
    }
    return Status();
  }

  Status TryOne(const std::string& json) {
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems,
                        ParseProblems(json, "--problem", space_.outline()));
    for (const Problem& problem : problems) Try(problem, /*listed=*/true);
    return Status();
  }

  std::vector<SpaceProblem> Choose(const std::vector<std::string>& only) {
    std::stable_sort(tried_.begin(), tried_.end(),
                     [](const Tried& a, const Tried& b) { return a.elements < b.elements; });
    std::vector<std::vector<SpaceCandidate>> chosen(tried_.size());
    for (const auto& [use, legal] : LegalByUse(only)) {
      for (size_t i : Some(legal)) {
        const auto& candidates = tried_[i].problem.candidates;
        chosen[i].push_back(
            *std::find_if(candidates.begin(), candidates.end(),
                          [use = use](const SpaceCandidate& one) { return one.use == use; }));
      }
    }
    std::vector<SpaceProblem> problems;
    for (size_t i = 0; i < tried_.size(); ++i) {
      if (chosen[i].empty()) continue;
      problems.push_back(std::move(tried_[i].problem));
      problems.back().candidates = std::move(chosen[i]);
    }
    return problems;
  }

 private:
  Status TryOp(uint32_t number, const Op& op) {
    KB_ASSIGN_OR_RETURN(const uint32_t row, space_.outline().FindOp(op.name));
    const std::vector<ProblemSpec> specs = ListedSpecs(space_.outline(), row);
    KB_ASSIGN_OR_RETURN(const std::vector<Problem> listed, ListedProblems(space_.outline(), row));
    for (const Problem& problem : listed) Try(problem, /*listed=*/true);
    std::set<std::string> structures;
    const std::set<std::vector<DType>> types = TypesOf(number, op);
    for (size_t i = 0; i < op.problems.size() && i < specs.size(); ++i) {
      for (const OpProblem& given : StructuresOf(op, op.problems[i])) {
        if (!structures.insert(StructureOf(op, given)).second) continue;
        for (const std::vector<DType>& chosen : types) TryDerived(op, given, specs[i], chosen);
      }
    }
    return Status();
  }

  void TryDerived(const Op& op, const OpProblem& given, const ProblemSpec& request,
                  const std::vector<DType>& types) {
    for (const ProblemSpec& spec : DerivedSpecs(op, given, request, types, kDerivedElements)) {
      const Result<Problem> problem = space_.outline().MakeProblem(op.name, spec);
      if (problem.ok()) Try(*problem, /*listed=*/false);
    }
  }

  // Those that the op's variants on this target are for.
  std::set<std::vector<DType>> TypesOf(uint32_t number, const Op& op) const {
    std::set<std::vector<DType>> types;
    for (const VariantUse& use : space_.work().variants) {
      if (use.op == number) types.insert(op.templates[use.template_index].points[use.point].types);
    }
    return types;
  }

  void Try(const Problem& problem, bool listed) {
    if (problem.AllResultsEmpty() || !seen_.insert(problem.op_name + problem.key).second) return;
    Result<SpaceProblem> made = space_.MakeProblem(problem);
    const int64_t elements = ElementsOf(problem);
    if (!made.ok() || made->candidates.empty() || elements > kLargestElements) return;
    tried_.push_back({std::move(*made), elements, listed});
  }

  std::map<uint32_t, std::vector<size_t>> LegalByUse(const std::vector<std::string>& only) const {
    std::map<uint32_t, std::vector<size_t>> legal;
    for (size_t i = 0; i < tried_.size(); ++i) {
      for (const SpaceCandidate& one : tried_[i].problem.candidates) {
        const bool asked =
            only.empty() || std::find(only.begin(), only.end(), one.id) != only.end();
        if (asked) legal[one.use].push_back(i);
      }
    }
    return legal;
  }

  std::vector<size_t> Some(const std::vector<size_t>& legal) const {
    std::vector<size_t> listed, derived;
    for (size_t i : legal) {
      if (tried_[i].elements <= kUsualElements) (tried_[i].listed ? listed : derived).push_back(i);
    }
    std::vector<size_t> some = Spread(listed, kListed);
    for (size_t i : Spread(derived, kDerived)) some.push_back(i);
    if (some.empty()) some.push_back(legal.front());
    return some;
  }

  // The first, the last, and others as evenly between as can be.
  static std::vector<size_t> Spread(const std::vector<size_t>& all, size_t most) {
    if (all.size() <= most) return all;
    std::vector<size_t> some;
    for (size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
    return some;
  }

  const TuneSpace& space_;
  std::vector<Tried> tried_;
  std::set<std::string> seen_;
};

Status CheckOneName(const char* option, const std::string& name,
                    const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return Status();
  return NotFound(fmt::format("{}: there is no '{}'{}", option, name, DidYouMean(name, known)));
}

Status CheckNames(const TuneSpace& space, const std::vector<std::string>& only) {
  std::vector<std::string> labels, ops;
  for (uint32_t use = 0; use < space.work().variants.size(); ++use) {
    labels.push_back(space.LabelOf(use));
  }
  for (const Work::OpRef& op : space.work().ops) ops.push_back(op.op->name);
  for (const std::string& name : only) KB_RETURN_IF_ERROR(CheckOneName("--only", name, labels));
  const std::string& op = space.options().op;
  return op.empty() ? Status() : CheckOneName("--op", op, ops);
}

}  // namespace

Result<std::vector<SpaceProblem>> ProblemsToTest(const TuneSpace& space,
                                                 const ConformanceChoice& choice) {
  KB_RETURN_IF_ERROR(CheckNames(space, choice.only));
  Chooser chooser(space);
  KB_RETURN_IF_ERROR(choice.problem.empty() ? chooser.TryAll(space.options().op)
                                            : chooser.TryOne(choice.problem));
  return chooser.Choose(choice.only);
}

std::string WhyUnreached(const TuneSpace& space, uint32_t use) {
  const Bundle& outline = space.outline();
  const std::string label = space.LabelOf(use);
  const std::string op = space.work().ops[space.work().variants[use].op].op->name;
  const auto row = outline.FindOp(op);
  const auto listed = row.ok() ? ListedProblems(outline, *row) : row.status();
  if (!listed.ok()) return listed.status().message();
  const std::string cure = "; add a problem that it is for to `problems` of [op." +
                           op.substr(op.find('.') + 1) + "], or give one with --problems";
  if (listed->empty()) return "the op lists no problems" + cure;
  const auto variants = outline.FindVariants(label);
  std::string why = "no listed problem has its types";
  for (const Problem& problem : *listed) {
    const fb::Variant& variant = *IndexOf(outline).variants()->Get(variants->front());
    if (variant.types() != problem.types) continue;
    for (const Verdict& verdict : Explain(outline, problem, space.device())) {
      if (verdict.variant != variants->front()) continue;
      why = verdict.legal ? problem.ToString() + " is too large to be tested"
                          : problem.ToString() + " is not for it: " + verdict.reason;
    }
    break;
  }
  return why + cure;
}

}  // namespace kbundle::builder
