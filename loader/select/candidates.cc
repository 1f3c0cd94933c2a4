// Whether one variant is legal: policy, target, then its `when` rules. Asked thousands of times
// without allocating, and once more with sentences when somebody wants to know why.
#include "loader/select/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "kbundle/cuts.h"
#include "kbundle/format.h"
#include "loader/open/bundle_rep.h"
#include "loader/open/index.h"
#include "loader/provider/provider.h"
#include "loader/support/absent.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {
std::vector<RankedTarget> RankTargets(const fb::Index& index, const Device& device) {
  std::vector<RankedTarget> ranked;
  ranked.reserve(Count(index.targets()));
  for (uint32_t i = 0; i < Count(index.targets()); ++i) {
    const fb::Target& row = *index.targets()->Get(i);
    const Target target{static_cast<TargetKind>(row.kind()), row.major(), row.minor(),
                        static_cast<char>(row.feature())};
    const int fit = target.Fit(device);
    if (fit == 0) continue;
    ranked.push_back({static_cast<uint16_t>(i), fit, target.major * 256 + target.minor,
                      target.kind == TargetKind::kCudaPortable});
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return std::tuple(-a.fit, -a.capability, a.target) <
           std::tuple(-b.fit, -b.capability, b.target);
  });
  return ranked;
}

Status CheckVariantsOn(const std::vector<RankedTarget>& targets, const Bundle& bundle,
                       const Problem& problem) {
  for (const RankedTarget& target : targets) {
    KB_RETURN_IF_ERROR(bundle.rep().CheckChoices(problem.op, target.target, problem.types));
  }
  return Status();
}

VariantRange VariantsOf(const fb::Index& index, uint32_t op, uint16_t target, uint64_t types) {
  const std::optional<uint32_t> number = EntryOf(index, {op, target, types});
  if (!number) return {};
  const fb::Entry& entry = *index.entries()->Get(*number);
  return {entry.first(), entry.first() + entry.count()};
}

CandidateCheck::CandidateCheck(const Bundle& bundle, const Problem& problem, const Device& device,
                               const SelectOptions& options)
    : bundle_(bundle), problem_(problem), device_(device), options_(options) {
  std::set<uint32_t> decided;  // by a later wish
  for (const Policy::Wish& wish : options.policy.wishes) {
    std::vector<uint32_t> meant = MeantBy(wish.variant_id);
    const size_t all = meant.size();
    std::erase_if(meant, [&](uint32_t variant) { return !decided.insert(variant).second; });
    if (!wish.forced) {
      denied_.insert(denied_.end(), meant.begin(), meant.end());
    } else if (!meant.empty()) {
      const bool narrowed = meant.size() < all;
      forced_.push_back({wish.variant_id, std::move(meant), narrowed});
    }
  }
  std::sort(denied_.begin(), denied_.end());
  if (options.modes.batch_invariant) hidden_ = BatchSymbols(bundle, problem);
}

std::vector<uint32_t> CandidateCheck::MeantBy(std::string_view id) const {
  if (id.substr(0, id.find('/')) != problem_.op_name) return {};
  Result<std::vector<uint32_t>> found = bundle_.FindVariants(id);
  if (!found.ok()) return {};  // a variant of another bundle
  const fb::Index& index = IndexOf(bundle_);
  std::erase_if(*found, [&](uint32_t variant) {
    const fb::Variant& row = *index.variants()->Get(variant);
    const auto kind = static_cast<TargetKind>(index.targets()->Get(row.target())->kind());
    return row.types() != problem_.types ||
           (kind == TargetKind::kHost) != (device_.kind == Device::Kind::kHost);
  });
  return std::move(*found);
}

Legality CandidateCheck::Check(uint32_t variant, const RankedTarget& target, bool explain) {
  Legality result;
  // Wishes last: a variant that is illegal anyway is not "refused by policy".
  if (WhenHolds(variant, explain, &result)) PolicyAllows(variant, target, explain, &result);
  return result;
}

bool CandidateCheck::PolicyAllows(uint32_t variant, const RankedTarget& target, bool explain,
                                  Legality* result) {
  const char* reason = nullptr;
  if (std::binary_search(denied_.begin(), denied_.end(), variant)) {
    reason = "denied by policy";
  } else if (target.portable && !options_.policy.allow_portable) {
    reason = "portable code is not allowed by policy";
  } else if (target.portable && options_.policy.strict) {
    reason = "strict: the driver would compile portable code";
  } else if (options_.policy.strict && Asks(IndexOf(bundle_), variant)) {
    reason = "strict: a heuristic would choose when a plan is made";
  } else if (options_.policy.strict && !RanOnDevice(*IndexOf(bundle_).variants()->Get(variant))) {
    reason = "strict: conformance never ran it on this device";
  }
  if (reason == nullptr) return true;
  result->legal = false;
  result->by_policy = true;
  if (explain) result->reason = reason;
  return false;
}

bool CandidateCheck::RanOnDevice(const fb::Variant& variant) const {
  const fb::Index& index = IndexOf(bundle_);
  const uint32_t steps = index.templates()->Get(variant.template_index())->steps()->size();
  for (uint32_t i = 0; i < steps; ++i) {
    const uint32_t blob = index.kernels()->Get(variant.kernels() + i)->blob();
    if (blob == kNoBlob) continue;                   // a step without code
    uint32_t low = 0, high = Count(index.ran_on());  // sorted by blob, then device
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (index.ran_on()->Get(middle)->blob() < blob)
        low = middle + 1;
      else
        high = middle;
    }
    bool ran = false;
    for (; low < Count(index.ran_on()) && index.ran_on()->Get(low)->blob() == blob && !ran; ++low) {
      const uint32_t device = index.ran_on()->Get(low)->device();
      ran = device_.name.empty() || View(index.devices()->Get(device)) == device_.name;
    }
    if (!ran) return false;
  }
  return true;
}

std::string CandidateCheck::WhyLetsFailed(uint32_t variant, const EvalContext& context) const {
  const fb::Index& index = IndexOf(bundle_);
  const auto* lets =
      index.templates()->Get(index.variants()->Get(variant)->template_index())->lets();
  for (uint32_t i = 0; i < Count(lets); ++i) {
    if ((context.let_errors >> i & 1) == 0) continue;
    const Slot value = RunProgram(context, *lets->Get(i)->program());
    return DescribeEvalError(context, value.error, View(lets->Get(i)->text()));
  }
  return "";
}

// Of code that is for one problem: the rule `VALUE == tunable`, where a list of all
// values of both problems would hide the one that differs. "" of other rules.
std::string CandidateCheck::WhyAnotherProblem(uint32_t variant, const fb::Rule& rule,
                                              const EvalContext& context) const {
  const fb::Index& index = IndexOf(bundle_);
  const fb::Template& row =
      *index.templates()->Get(index.variants()->Get(variant)->template_index());
  const fb::Span& program = *rule.program();
  const Provider& provider = ProviderOf(index, row);
  if (!provider.ForOneProblem() || program.count() != 3) return "";
  const uint32_t word = index.code()->Get(program.first() + 1);
  if (static_cast<Opcode>(word & 0xff) != Opcode::kTunable) return "";
  const Slot asked = RunProgram(context, fb::Span(program.first(), 1));
  if (!asked.ok()) return "";
  const std::string_view name = provider.OwnStepName();
  return fmt::format("its {} is for another problem: {} is {}, the {}'s {}", name,
                     View(row.tunables()->Get(word >> 8)), asked.value,
                     name.substr(name.rfind(' ') + 1), context.tunables[word >> 8]);
}

EvalContext CandidateCheck::ContextOf(std::span<const int64_t> tunables) const {
  EvalContext context;
  context.bundle = &bundle_;
  context.problem = &problem_;
  context.alignment = options_.alignment;
  context.sm_count = device_.sm_count;
  context.tunables = tunables;
  if (options_.modes.batch_invariant) context.hidden = &hidden_;
  return context;
}

void CandidateCheck::Enter(uint32_t number) {
  if (entered_.row != nullptr && entered_.number == number) return;
  entered_.row = IndexOf(bundle_).templates()->Get(number);
  entered_.number = number;
  entered_.tunables = Count(entered_.row->tunables());
  entered_.count = Count(entered_.row->when());
  entered_.refused = false;
  entered_.seen = 0;
}

bool CandidateCheck::WhenHolds(uint32_t variant, bool explain, Legality* result) {
  const fb::Index& index = IndexOf(bundle_);
  const fb::Variant& point = *index.variants()->Get(variant);
  Enter(point.template_index());
  if (entered_.count == 0 && !options_.modes.any()) return true;
  EvalContext context = ContextOf({});
  if (entered_.tunables != 0) {
    context.tunables = {index.constants()->data() + point.tunables(), entered_.tunables};
  }
  // Most variants fail one of the first rules, which know none of the lets.
  LetValues lets;
  const auto need_lets = [&] {
    if (lets.count == Count(entered_.row->lets())) return;
    lets = EvaluateLets(context, variant);
    context.lets = lets.view();
    context.let_errors = lets.errors;
  };
  bool holds = !entered_.refused;
  for (uint32_t i = 0; i < entered_.count && holds; ++i) {
    Entered::Rule& rule = entered_.rules[i];
    if (i == entered_.seen) {
      const fb::Span* program = entered_.row->when()->Get(i)->program();
      rule = {program, PointReadsOf(index, *program), false};
      ++entered_.seen;
    }
    if (rule.holds) continue;
    if (rule.reads.lets) need_lets();
    const Slot value = RunProgram(context, index, rule.program->first(), rule.program->count());
    holds = value.ok() && value.value != 0;
    if (rule.reads.any()) continue;
    rule.holds = holds;
    entered_.refused = !holds;
  }
  if (!holds) {
    result->legal = false;
    if (explain) result->reason = WhichRuleFails(variant);
    return false;
  }
  if (!options_.modes.any()) return true;
  need_lets();
  return KeepsModes(context, *entered_.row, explain, result);
}

// Of one that does: the first in the manifest.
std::string CandidateCheck::WhichRuleFails(uint32_t variant) const {
  const fb::Index& index = IndexOf(bundle_);
  EvalContext context = ContextOf(Tunables(bundle_, variant));
  const LetValues lets = EvaluateLets(context, variant);
  context.lets = lets.view();
  context.let_errors = lets.errors;
  for (const fb::Rule* rule : *entered_.row->when()) {
    const Slot value = RunProgram(context, *rule->program());
    if (value.ok() && value.value != 0) continue;
    std::string reason = WhyAnotherProblem(variant, *rule, context);
    if (!reason.empty()) return reason;
    if (!value.ok()) {
      reason = DescribeEvalError(context, value.error, View(rule->text()));
      return value.error == SlotError::kLet ? reason + ": " + WhyLetsFailed(variant, context)
                                            : reason;
    }
    reason =
        fmt::format("`{}` is false with {}", View(rule->text()), SymbolValues(bundle_, problem_));
    if (context.tunables.empty()) return reason;
    return reason + fmt::format(" and {}", TunablesText(index, variant));
  }
  return "";
}

}  // namespace kbundle
