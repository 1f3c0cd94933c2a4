// Select: which variants may compute a problem on a device, best first. Pure: reads the index, the
// problem and the options, nothing else.
#include "kbundle/select.h"

#include <fmt/format.h>

#include <algorithm>

#include "kbundle/tuned.h"
#include "loader/open/index.h"
#include "loader/provider/provider.h"
#include "loader/select/candidates.h"
#include "loader/select/launchable.h"
#include "loader/select/nothing_legal.h"

namespace kbundle {
namespace {

std::string InWords(const fb::Index& index, const Selected& row) {
  switch (row.choice) {
    case Choice::kForced:
      return "forced";
    case Choice::kTuned:
      return "tuned for this very problem";
    case Choice::kNearest:
      return "as on the nearest tuned problem";
    case Choice::kPortable:
      return "portable, nothing better fits";
    case Choice::kHeuristic:
      return fmt::format("no record of this problem: {} is asked when the plan is made",
                         ProviderOf(index, row.variant).asks());
    case Choice::kManifestOrder:
      break;
  }
  return "first legal in manifest order";
}

// How much of the order somebody will look at.
enum class Wanted { kFirst, kAll };

// Puts the legal variants in order, each once, as far as they are asked for. Borrows everything.
class Order {
 public:
  Order(const Bundle& bundle, const Problem& problem, const Device& device,
        const SelectOptions& options, Wanted wanted)
      : bundle_(bundle),
        index_(IndexOf(bundle)),
        problem_(problem),
        device_(device),
        options_(options),
        wanted_(wanted),
        targets_(RankTargets(index_, device)),
        check_(bundle, problem, device, options) {}

  // First.
  Status CheckRows() const { return CheckVariantsOn(targets_, bundle_, problem_); }

  // The forced variants that this problem and device can mean.
  Status AddForced() {
    for (const auto& [id, wanted, narrowed] : check_.forced()) {
      std::string reason = fmt::format("no target of it runs on {}", device_.ToString());
      bool any = false;
      for (const RankedTarget& target : targets_) {
        for (uint32_t variant : wanted) {
          if (index_.variants()->Get(variant)->target() != target.target) continue;
          const Legality legality = check_.Check(variant, target, true);
          if (legality.legal)
            order_.push_back({variant, Choice::kForced});
          else
            reason = legality.reason;
          any |= legality.legal;
        }
      }
      if (any || narrowed) continue;  // what is left of it need not be what runs here
      return FailedPrecondition(
          fmt::format("variant '{}' is forced but not legal for {} on {}: {}; "
                      "clear the policy or force another",
                      id, problem_.ToString(), device_.ToString(), reason));
    }
    return Status();
  }

  // Those and all others. Empty: nothing is legal.
  std::vector<Selected> Finish() {
    if (!Done()) AddTuned();
    if (!Done()) AddByManifest();
    return std::move(order_);
  }

  // Why nothing is legal: a second walk, now with sentences.
  Status WhyEmpty() {
    Rejected rejected;
    for (const RankedTarget& target : targets_) {
      const VariantRange range = VariantsOn(target);
      for (uint32_t i = range.first; i < range.end; ++i) {
        rejected.Add(bundle_, i, check_.Check(i, target, true));
      }
    }
    return NothingLegal(bundle_, problem_, device_, targets_, rejected);
  }

 private:
  // Where the size of the batch may not choose, this very problem's record is a neighbour's too.
  bool IsExact(const NearestTuned& nearest) const {
    return nearest.distance == 0 && !options_.modes.batch_invariant;
  }

  bool Done() const { return !order_.empty() && wanted_ == Wanted::kFirst; }

  // That a library is missing, is another version or disagrees shows only when a plan is made.
  bool LastMayNotLoad() const { return !ProviderOf(index_, order_.back().variant).needs().empty(); }

  // In manifest order.
  VariantRange VariantsOn(const RankedTarget& target) const {
    return VariantsOf(index_, problem_.op, target.target, problem_.types);
  }

  bool Contains(uint32_t variant, size_t among) const {
    return std::any_of(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(among),
                       [variant](const Selected& row) { return row.variant == variant; });
  }

  // The choice of the tuned problem that is this one or the nearest, on the best target that has
  // any, where it is legal; while a choice may not load, those of the next nearest.
  void AddTuned() {
    for (const RankedTarget& target : targets_) {
      const NearestTuned nearest =
          FindTuned(bundle_, problem_, target.target, device_, check_.hidden());
      if (nearest.row < 0) continue;
      bool added = !IsExact(nearest) && AddAsking(target, nearest);
      added = (!Done() && AddMeant(target, nearest)) || added;
      if (added && !Done() && LastMayNotLoad()) AddNextNearest();
      return;
    }
  }

  void AddNextNearest() {
    for (const RankedTarget& target : targets_) {
      for (const NearestTuned& row :
           TunedByDistance(bundle_, problem_, target.target, device_, check_.hidden())) {
        if (AddMeant(target, row) && !LastMayNotLoad()) return;
      }
    }
  }

  uint32_t TemplateOf(uint32_t variant) const {
    return index_.variants()->Get(variant)->template_index();
  }

  // range.end: none is.
  uint32_t FirstLegal(VariantRange range, const RankedTarget& target) {
    while (range.first < range.end && !check_.Check(range.first, target, false).legal) {
      ++range.first;
    }
    return range.first;
  }

  // The nearest problem's winner says which template is best about here; what a library answers for
  // the very problem is better than what it answered there. Where the neighbour's default is of
  // that template too, a default of another is this problem's: manifest order knows the sizes.
  bool AddAsking(const RankedTarget& target, const NearestTuned& nearest) {
    const fb::Tuned& row = *index_.tuned()->Get(static_cast<uint32_t>(nearest.row));
    const uint32_t wanted = TemplateOf(row.winner());
    const VariantRange range = VariantsOn(target);
    for (uint32_t i = range.first; i < range.end; ++i) {
      if (TemplateOf(i) != wanted || !Asks(index_, i)) continue;
      if (!check_.Check(i, target, false).legal) continue;
      const uint32_t own = FirstLegal(range, target);
      const uint32_t base = index_.evidence()->Get(row.evidence())->base();
      const bool other = TemplateOf(own) != wanted && TemplateOf(base) == wanted;
      order_.push_back(
          {other ? own : i, other ? Choice::kNearest : Choice::kHeuristic, nearest.row});
      return true;
    }
    return false;
  }

  // What a tuned row means for this problem: its winner. Where the default won on a neighbour, this
  // problem's own default, which may be another variant: manifest order knows the sizes, a
  // neighbour's winner only its own. False: not legal here, or placed already.
  bool AddMeant(const RankedTarget& target, const NearestTuned& nearest) {
    const fb::Tuned& row = *index_.tuned()->Get(static_cast<uint32_t>(nearest.row));
    VariantRange among{row.winner(), row.winner() + 1};
    if (index_.variants()->Get(row.winner())->types() != problem_.types) return false;
    if (!IsExact(nearest) && index_.evidence()->Get(row.evidence())->base() == row.winner()) {
      among = VariantsOn(target);
    }
    const uint32_t variant = FirstLegal(among, target);
    if (variant == among.end || Contains(variant, order_.size())) return false;
    const Choice choice = IsExact(nearest)        ? Choice::kTuned
                          : Asks(index_, variant) ? Choice::kHeuristic
                                                  : Choice::kNearest;
    order_.push_back({variant, choice, nearest.row});
    return true;
  }

  void AddByManifest() {
    const size_t placed = order_.size();
    for (const RankedTarget& target : targets_) {
      const VariantRange range = VariantsOn(target);
      for (uint32_t i = range.first; i < range.end; ++i) {
        if (!check_.Check(i, target, false).legal || Contains(i, placed)) continue;
        order_.push_back({i, target.portable   ? Choice::kPortable
                             : Asks(index_, i) ? Choice::kHeuristic
                                               : Choice::kManifestOrder});
        if (Done()) return;
      }
    }
  }

  const Bundle& bundle_;
  const fb::Index& index_;
  const Problem& problem_;
  const Device& device_;
  const SelectOptions& options_;
  const Wanted wanted_;
  const std::vector<RankedTarget> targets_;
  CandidateCheck check_;
  std::vector<Selected> order_;
};

Result<std::vector<Selected>> Run(const Bundle& bundle, const Problem& problem,
                                  const Device& device, const SelectOptions& options,
                                  Wanted wanted) {
  Order order(bundle, problem, device, options, wanted);
  KB_RETURN_IF_ERROR(order.CheckRows());
  KB_RETURN_IF_ERROR(order.AddForced());
  std::vector<Selected> selected = order.Finish();
  if (selected.empty()) return order.WhyEmpty();
  return selected;
}

}  // namespace

const char* ChoiceName(Choice choice) {
  switch (choice) {
    case Choice::kTuned:
      return "exact";
    case Choice::kNearest:
      return "nearest";
    case Choice::kManifestOrder:
      return "manifest order";
    case Choice::kPortable:
      return "portable";
    case Choice::kForced:
      return "forced";
    case Choice::kHeuristic:
      return "heuristic";
  }
  return "?";
}

Result<std::vector<Selected>> Select(const Bundle& bundle, const Problem& problem,
                                     const Device& device, const SelectOptions& options) {
  return Run(bundle, problem, device, options, Wanted::kAll);
}

Result<Selected> SelectFirst(const Bundle& bundle, const Problem& problem, const Device& device,
                             const SelectOptions& options) {
  KB_ASSIGN_OR_RETURN(const std::vector<Selected> order,
                      Run(bundle, problem, device, options, Wanted::kFirst));
  return order.front();
}

std::vector<Verdict> Explain(const Bundle& bundle, const Problem& problem, const Device& device,
                             const SelectOptions& options) {
  const fb::Index& index = IndexOf(bundle);
  const Result<Launchable> selected = SelectLaunchable(bundle, problem, device, options);
  const std::vector<RankedTarget> targets = RankTargets(index, device);
  CandidateCheck check(bundle, problem, device, options);
  const Status sound = bundle.FindOp(problem.op_name).status();
  std::vector<Verdict> verdicts;
  const VariantRange range = VariantsOf(index, problem.op);
  std::vector<bool> said(range.end - range.first);
  for (size_t i = 0; selected.ok() && i < selected->order.size(); ++i) {
    const Selected& row = selected->order[i];
    said[row.variant - range.first] = true;
    const std::string how = InWords(index, row);
    verdicts.push_back(
        {row.variant, true,
         i == 0 ? fmt::format("chosen: {}", how) : fmt::format("legal, number {}", i + 1)});
  }
  for (size_t i = 0; selected.ok() && i < selected->passed_over.size(); ++i) {
    const NotLaunchable& row = selected->passed_over[i];
    said[row.selected.variant - range.first] = true;
    verdicts.push_back({row.selected.variant, false, row.reason});
  }
  for (uint32_t i = range.first; i < range.end; ++i) {
    if (said[i - range.first]) continue;
    const fb::Variant& row = *index.variants()->Get(i);
    const fb::Target& name = *index.targets()->Get(row.target());
    const bool host = static_cast<TargetKind>(name.kind()) == TargetKind::kHost;
    if (host != (device.kind == Device::Kind::kHost)) continue;
    const auto target = std::find_if(targets.begin(), targets.end(),
                                     [&](const auto& t) { return t.target == row.target(); });
    std::string reason;
    if (row.types() != problem.types) {
      reason =
          fmt::format("it is for {}, this is {}", TypesText(OpOf(bundle, problem.op), row.types()),
                      TypesText(OpOf(bundle, problem.op), problem.types));
    } else if (!sound.ok()) {
      reason = sound.message();
    } else if (target == targets.end()) {
      reason = fmt::format("{} cannot run on {}", name.name()->string_view(), device.ToString());
    } else {
      const Legality legality = check.Check(i, *target, true);
      reason = legality.legal ? selected.status().message() : legality.reason;
    }
    verdicts.push_back({i, false, std::move(reason)});
  }
  return verdicts;
}

}  // namespace kbundle
