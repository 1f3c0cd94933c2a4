// Variants of one op, target and dtypes are compared, in manifest order, with those kept before
// them, by terms (expression/term.h): a proof that does not succeed keeps the variant.
#include "builder/pipeline/lean.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "builder/compile/keep_variants.h"
#include "builder/expression/term.h"
#include "builder/provider/provider.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

// What records say of variants, by id.
class Measured {
 public:
  explicit Measured(const std::vector<FoundRecords>& found) {
    for (const FoundRecords& file : found) {
      for (const TuningRecord& record : file.records) Add(record);
    }
  }

  // As winner or as the default that a winner was compared with.
  bool IsNamed(const std::string& id) const { return named_.contains(id); }

  // On every problem that a library listed it for, or where it listed none, on any.
  bool LostAll(const std::string& id, const std::vector<std::string>& listed_for) const {
    const auto problems = lost_.find(id);
    if (problems == lost_.end()) return false;
    return std::all_of(listed_for.begin(), listed_for.end(), [&](const std::string& problem) {
      return problems->second.contains(problem);
    });
  }

 private:
  void Add(const TuningRecord& record) {
    named_.insert({record.winner, record.base});
    const std::string problem = record.problem.dump();
    for (const RecordCandidate& candidate : record.candidates) {
      if (!candidate.failed) lost_[candidate.variant].insert(problem);
    }
  }

  std::set<std::string> named_;
  std::map<std::string, std::set<std::string>> lost_;  // problems
};

// A workspace is its regions, each rounded up.
struct Workspace {
  int64_t fixed = 0;                 // bytes of the regions of constant size
  std::multiset<std::string> terms;  // the other regions
};

// What decides whether one variant may stand for another.
struct Traits {
  bool library = false;  // steps call one: it may not load, which shows only when a plan is made
  std::vector<Term> conditions;         // all must hold
  std::map<std::string, Term> by_text;  // the same
  Workspace workspace;
  std::string steps;  // their kinds and conditions
  size_t tensor_maps = 0;
  std::optional<Term> same_in_every_run, in_every_batch;  // where it promises so; none: nowhere
};

// None where nothing is promised; false where the condition is too long to be written out.
bool ReadPromise(const std::optional<Program>& promise, const Template& variant,
                 const Template::Point& point, std::optional<Term>* read) {
  if (promise) *read = TermOf(promise->code, variant, point);
  return promise.has_value() == read->has_value();
}

// nullopt: too long to be written out.
std::optional<Traits> TraitsOf(const Template& variant, const Template::Point& point) {
  Traits traits;
  traits.library = variant.provider->own_step_number() != 0;
  for (const Program& rule : variant.when) {
    std::optional<Term> term = TermOf(rule.code, variant, point);
    if (!term) return std::nullopt;
    AddParts(std::move(*term), &traits.conditions);
  }
  for (const Term& condition : traits.conditions) traits.by_text[condition.Text()] = condition;
  for (const Region& region : variant.regions) {
    const std::optional<Term> bytes = TermOf(region.bytes.code, variant, point);
    if (!bytes) return std::nullopt;
    constexpr int64_t kStep = kWorkspaceAlignment;
    if (bytes->IsConstant()) {
      traits.workspace.fixed += (bytes->operand + kStep - 1) / kStep * kStep;
    } else {
      traits.workspace.terms.insert(bytes->Text());
    }
  }
  if (!ReadPromise(variant.deterministic, variant, point, &traits.same_in_every_run) ||
      !ReadPromise(variant.batch_invariant, variant, point, &traits.in_every_batch)) {
    return std::nullopt;
  }
  for (const Step& step : variant.steps) {
    traits.steps += std::to_string(static_cast<int>(step.kind));
    traits.tensor_maps += step.tensor_maps.size();
    if (!step.when) continue;
    const std::optional<Term> when = TermOf(step.when->code, variant, point);
    if (!when) return std::nullopt;
    traits.steps += "?" + when->Text();
  }
  return traits;
}

bool AsksForNoMore(const Workspace& a, const Workspace& b) {
  return a.fixed <= b.fixed &&
         std::includes(b.terms.begin(), b.terms.end(), a.terms.begin(), a.terms.end());
}

bool EnqueuesAlike(const Traits& earlier, const Traits& later) {
  return (!earlier.library || later.library) && earlier.steps == later.steps &&
         earlier.tensor_maps <= later.tensor_maps &&
         AsksForNoMore(earlier.workspace, later.workspace);
}

// Wherever `later` promises it, `earlier` does: always, or under the same condition.
bool PromisesAsMuch(const std::optional<Term>& earlier, const std::optional<Term>& later) {
  if (!later) return true;
  if (!earlier) return false;
  const bool always = earlier->IsConstant() && earlier->operand != 0;
  return always || earlier->Text() == later->Text();
}

// Wherever `later` can be launched, `earlier` is legal; and unless `later` is a spare one, fits and
// enqueues alike.
bool StandsFor(const Traits& earlier, const Traits& later, bool spare) {
  if (spare ? earlier.library : !EnqueuesAlike(earlier, later)) return false;
  // Who asks for a mode must find what promises it.
  if (!PromisesAsMuch(earlier.same_in_every_run, later.same_in_every_run) ||
      !PromisesAsMuch(earlier.in_every_batch, later.in_every_batch)) {
    return false;
  }
  return std::all_of(earlier.by_text.begin(), earlier.by_text.end(), [&](const auto& one) {
    return later.by_text.contains(one.first) || Implies(later.conditions, one.second);
  });
}

}  // namespace

int KeepChoosable(const std::vector<FoundRecords>& records, Work* work) {
  const Measured measured(records);
  using Group = std::tuple<uint32_t, uint32_t, uint64_t>;  // op, target, types
  std::map<Group, std::vector<Traits>> groups;             // of those kept
  std::vector<VariantUse> kept;
  for (const VariantUse& use : work->variants) {
    const Op& op = *work->ops[use.op].op;
    const Template& variant = op.templates[use.template_index];
    const Template::Point& point = variant.points[use.point];
    const std::string id = VariantLabel(op, variant, point, work->targets[use.target]);
    std::vector<Traits>& before = groups[{use.op, use.target, PackTypes(point.types)}];
    std::optional<Traits> traits = TraitsOf(variant, point);
    if (traits && !measured.IsNamed(id)) {
      const bool lost = traits->library && measured.LostAll(id, point.listed_for);
      const bool stands = std::any_of(before.begin(), before.end(), [&](const Traits& earlier) {
        return (!earlier.library || lost) && StandsFor(earlier, *traits, variant.spare);
      });
      if (stands) continue;
    }
    // A heuristic is asked for what no record names, and never in a strict process.
    if (traits && !point.asks) before.push_back(std::move(*traits));
    kept.push_back(use);
  }
  const auto gone = static_cast<int>(work->variants.size() - kept.size());
  KeepVariants(std::move(kept), work);
  return gone;
}

}  // namespace kbundle::builder
