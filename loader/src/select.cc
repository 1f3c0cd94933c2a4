// Select: which variants may compute a problem on a device, best first. Pure: reads the index, the
// problem and the options, nothing else.
#include "kbundle/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "candidates.h"
#include "kbundle/tuned.h"
#include "verify.h"

namespace kbundle {
namespace {

// Where the search stands for an answer when nothing is legal.
struct Rejected {
  std::vector<std::string> reasons;  // by template and reason, once each
  uint32_t variants = 0;
  bool by_policy = false;

  void Add(const Bundle& bundle, uint32_t variant, const Legality& legality) {
    constexpr size_t kShown = 6;
    ++variants;
    by_policy |= legality.by_policy;
    if (reasons.size() > kShown) return;
    const fb::Index& index = bundle.index();
    const auto& row = *index.templates()->Get(index.variants()->Get(variant)->template_index());
    std::string reason = fmt::format("{}: {}", row.name()->string_view(), legality.reason);
    if (std::find(reasons.begin(), reasons.end(), reason) != reasons.end()) return;
    reasons.push_back(reasons.size() == kShown ? "and more" : std::move(reason));
  }
};

std::string TargetsOf(const fb::Index& index, uint32_t op) {
  std::vector<bool> has(Count(index.targets()));
  for (uint32_t i = 0; i < Count(index.entries()); ++i) {
    if (index.entries()->Get(i)->op() == op) has[index.entries()->Get(i)->target()] = true;
  }
  std::string names;
  for (uint32_t i = 0; i < has.size(); ++i) {
    if (!has[i]) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ",
                         index.targets()->Get(i)->name()->string_view());
  }
  return names.empty() ? "no target" : names;
}

std::string TypesText(const fb::Op& op, uint64_t types) {
  std::string text;
  for (uint32_t i = 0; i < Count(op.types()); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ",", op.types()->Get(i)->name()->string_view(),
                        Name(TypeAt(types, static_cast<int>(i))));
  }
  return text.empty() ? "no type parameter" : text;
}

// The dtypes that the fitting targets have code for.
std::string TypesOf(const Bundle& bundle, uint32_t op, const std::vector<RankedTarget>& targets) {
  const fb::Index& index = bundle.index();
  std::vector<uint64_t> found;
  for (uint32_t i = 0; i < Count(index.entries()); ++i) {
    const fb::Entry& entry = *index.entries()->Get(i);
    const bool fits = std::any_of(targets.begin(), targets.end(),
                                  [&](const auto& t) { return t.target == entry.target(); });
    if (entry.op() != op || !fits) continue;
    if (std::find(found.begin(), found.end(), entry.types()) == found.end()) {
      found.push_back(entry.types());
    }
  }
  std::string text;
  for (uint64_t types : found) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", TypesText(bundle.op(op), types));
  }
  return text;
}

Status NothingLegal(const Bundle& bundle, const Problem& problem, const Device& device,
                    const std::vector<RankedTarget>& targets, const Rejected& rejected) {
  const std::string asked = fmt::format("selecting for {} on {} from bundle '{}'",
                                        problem.ToString(), device.ToString(), bundle.path());
  if (rejected.variants != 0) {
    std::string message = fmt::format("{}: none of {} variants is legal: {}", asked,
                                      rejected.variants, fmt::join(rejected.reasons, "; "));
    return rejected.by_policy
               ? PermissionDenied(message +
                                  "; the policy refuses code: relax it, or build and run "
                                  "conformance for this device")
               : NotFound(message + "; add a variant whose `when` holds here");
  }
  const std::string types = TypesOf(bundle, problem.op, targets);
  if (!types.empty()) {
    return NotFound(
        fmt::format("{}: it has code for {}, not for {}; convert the operands or add "
                    "the dtype to the op",
                    asked, types, TypesText(bundle.op(problem.op), problem.types)));
  }
  return NotFound(
      fmt::format("{}: it has code for {}, none of which runs on {}; build with "
                  "--targets for this device",
                  asked, TargetsOf(bundle.index(), problem.op), device.ToString()));
}

// Among the first `count`: the forced ones, which were placed already.
bool Contains(const std::vector<Selected>& order, size_t count, uint32_t variant) {
  return std::any_of(order.begin(), order.begin() + static_cast<ptrdiff_t>(count),
                     [variant](const Selected& row) { return row.variant == variant; });
}

// The forced variants that this problem and device can mean, legal ones first in `order`.
Status AddForced(const Bundle& bundle, const Problem& problem, const Device& device,
                 const SelectOptions& options, const std::vector<RankedTarget>& targets,
                 std::vector<Selected>* order) {
  CandidateCheck check(bundle, problem, device, options);
  for (const std::string& id : options.policy.forced) {
    const std::vector<uint32_t> wanted = check.MeantBy(id);
    if (wanted.empty()) continue;  // for another op, dtype or kind of device
    std::string reason = fmt::format("no target of it runs on {}", device.ToString());
    bool any = false;
    for (const RankedTarget& target : targets) {
      for (uint32_t variant : wanted) {
        if (bundle.index().variants()->Get(variant)->target() != target.target) continue;
        const Legality legality = check.Check(variant, target, true);
        if (legality.legal)
          order->push_back({variant, Choice::kForced});
        else
          reason = legality.reason;
        any |= legality.legal;
      }
    }
    if (any) continue;
    return FailedPrecondition(
        fmt::format("variant '{}' is forced but not legal for {} on {}: {}; "
                    "clear the policy or force another",
                    id, problem.ToString(), device.ToString(), reason));
  }
  return Status();
}

// The first legal variant in manifest order on this target.
std::optional<uint32_t> DefaultOn(const Bundle& bundle, const Problem& problem,
                                  const RankedTarget& target, CandidateCheck* check) {
  const fb::Entry* entry = FindEntry(bundle.index(), problem.op, target.target, problem.types);
  for (uint32_t i = 0; entry != nullptr && i < entry->count(); ++i) {
    if (check->Check(entry->first() + i, target, false).legal) return entry->first() + i;
  }
  return std::nullopt;
}

// What a tuned row means for this problem: its winner. Where the default won on a neighbour, this
// problem's own default, which may be another variant: manifest order knows the sizes, a
// neighbour's winner only its own.
std::optional<uint32_t> MeantBy(const Bundle& bundle, const Problem& problem,
                                const RankedTarget& target, const NearestTuned& nearest,
                                CandidateCheck* check) {
  const fb::Index& index = bundle.index();
  const fb::Tuned& row = *index.tuned()->Get(static_cast<uint32_t>(nearest.row));
  if (nearest.distance > 0 && index.evidence()->Get(row.evidence())->base() == row.winner()) {
    return DefaultOn(bundle, problem, target, check);
  }
  if (index.variants()->Get(row.winner())->types() != problem.types) return std::nullopt;
  if (!check->Check(row.winner(), target, false).legal) return std::nullopt;
  return row.winner();
}

// The choice of the tuned problem that is this one or the nearest, on the best target that has any.
// False when there is none, or it is not legal here.
bool AddTuned(const Bundle& bundle, const Problem& problem, const Device& device,
              const std::vector<RankedTarget>& targets, CandidateCheck* check,
              std::vector<Selected>* order) {
  for (const RankedTarget& target : targets) {
    const NearestTuned nearest = FindTuned(bundle, problem, target.target, device);
    if (nearest.row < 0) continue;
    const std::optional<uint32_t> variant = MeantBy(bundle, problem, target, nearest, check);
    if (!variant || Contains(*order, order->size(), *variant)) return false;
    order->push_back({*variant, nearest.distance == 0 ? Choice::kTuned : Choice::kNearest});
    return true;
  }
  return false;
}

// Whether the variant may turn out not to load although it is legal: cuBLASLt has the last word
// about its algorithms.
bool MayNotLoad(const fb::Index& index, uint32_t variant) {
  const auto& row = *index.templates()->Get(index.variants()->Get(variant)->template_index());
  return static_cast<Provider>(row.provider()) == Provider::kCublasLt;
}

// Where the nearest tuned problem's choice may not load: those of the next nearest.
void AddFurtherTuned(const Bundle& bundle, const Problem& problem, const Device& device,
                     const std::vector<RankedTarget>& targets, CandidateCheck* check,
                     std::vector<Selected>* order) {
  for (const RankedTarget& target : targets) {
    for (const NearestTuned& row : TunedByDistance(bundle, problem, target.target, device)) {
      const std::optional<uint32_t> variant = MeantBy(bundle, problem, target, row, check);
      if (!variant || Contains(*order, order->size(), *variant)) continue;
      order->push_back({*variant, Choice::kNearest});
    }
  }
}

// All of the list, or only its head.
Result<std::vector<Selected>> Run(const Bundle& bundle, const Problem& problem,
                                  const Device& device, const SelectOptions& options,
                                  bool first_only) {
  const std::vector<RankedTarget> targets = RankTargets(bundle.index(), device);
  std::vector<Selected> order;
  if (!options.policy.forced.empty()) {
    KB_RETURN_IF_ERROR(AddForced(bundle, problem, device, options, targets, &order));
    if (first_only && !order.empty()) return order;
  }
  CandidateCheck check(bundle, problem, device, options);
  const auto tuned = AddTuned(bundle, problem, device, targets, &check, &order);
  if (first_only && tuned) return order;
  if (tuned && MayNotLoad(bundle.index(), order.back().variant)) {
    AddFurtherTuned(bundle, problem, device, targets, &check, &order);
  }
  const size_t placed = order.size();
  for (const RankedTarget& target : targets) {
    const fb::Entry* entry = FindEntry(bundle.index(), problem.op, target.target, problem.types);
    if (entry == nullptr) continue;
    for (uint32_t i = entry->first(); i < entry->first() + entry->count(); ++i) {
      if (!check.Check(i, target, false).legal || Contains(order, placed, i)) continue;
      order.push_back({i, target.portable ? Choice::kPortable : Choice::kManifestOrder});
      if (first_only) return order;
    }
  }
  if (!order.empty()) return order;
  Rejected rejected;  // a second walk, now with sentences
  for (const RankedTarget& target : targets) {
    const fb::Entry* entry = FindEntry(bundle.index(), problem.op, target.target, problem.types);
    for (uint32_t i = 0; entry != nullptr && i < entry->count(); ++i) {
      rejected.Add(bundle, entry->first() + i, check.Check(entry->first() + i, target, true));
    }
  }
  return NothingLegal(bundle, problem, device, targets, rejected);
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
  }
  return "?";
}

Result<std::vector<Selected>> Select(const Bundle& bundle, const Problem& problem,
                                     const Device& device, const SelectOptions& options) {
  return Run(bundle, problem, device, options, false);
}

Result<Selected> SelectFirst(const Bundle& bundle, const Problem& problem, const Device& device,
                             const SelectOptions& options) {
  KB_ASSIGN_OR_RETURN(const std::vector<Selected> order,
                      Run(bundle, problem, device, options, true));
  return order.front();
}

int64_t DecidingRow(const Bundle& bundle, const Problem& problem, const Device& device,
                    const Selected& selected) {
  if (selected.choice != Choice::kTuned && selected.choice != Choice::kNearest) return -1;
  const fb::Index& index = bundle.index();
  const uint16_t target = index.variants()->Get(selected.variant)->target();
  const NearestTuned nearest = FindTuned(bundle, problem, target, device);
  if (!MayNotLoad(index, selected.variant)) return nearest.row;
  for (const NearestTuned& row : TunedByDistance(bundle, problem, target, device)) {
    if (index.tuned()->Get(static_cast<uint32_t>(row.row))->winner() == selected.variant) {
      return row.row;
    }
  }
  return nearest.row;
}

std::vector<Verdict> Explain(const Bundle& bundle, const Problem& problem, const Device& device,
                             const SelectOptions& options) {
  const fb::Index& index = bundle.index();
  const Result<std::vector<Selected>> selected = Select(bundle, problem, device, options);
  const std::vector<RankedTarget> targets = RankTargets(index, device);
  CandidateCheck check(bundle, problem, device, options);
  std::vector<Verdict> verdicts;
  const VariantRange range = VariantsOf(index, problem.op);
  std::vector<uint32_t> position(range.end - range.first, 0);  // in the order, from 1
  for (size_t i = 0; selected.ok() && i < selected->size(); ++i) {
    const Selected& row = (*selected)[i];
    position[row.variant - range.first] = static_cast<uint32_t>(i) + 1;
    const char* how = row.choice == Choice::kForced     ? "forced"
                      : row.choice == Choice::kTuned    ? "tuned for this very problem"
                      : row.choice == Choice::kNearest  ? "as on the nearest tuned problem"
                      : row.choice == Choice::kPortable ? "portable, nothing better fits"
                                                        : "first legal in manifest order";
    verdicts.push_back(
        {row.variant, true,
         i == 0 ? fmt::format("chosen: {}", how) : fmt::format("legal, number {}", i + 1)});
  }
  for (uint32_t i = range.first; i < range.end; ++i) {
    if (position[i - range.first] != 0) continue;
    const fb::Variant& row = *index.variants()->Get(i);
    const fb::Target& name = *index.targets()->Get(row.target());
    const bool host = static_cast<TargetKind>(name.kind()) == TargetKind::kHost;
    if (host != (device.kind == Device::Kind::kHost)) continue;
    const auto target = std::find_if(targets.begin(), targets.end(),
                                     [&](const auto& t) { return t.target == row.target(); });
    std::string reason;
    if (row.types() != problem.types) {
      reason =
          fmt::format("it is for {}, this is {}", TypesText(bundle.op(problem.op), row.types()),
                      TypesText(bundle.op(problem.op), problem.types));
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
