// Nothing is legal: is it a condition, the policy, a mode, the dtypes or the targets? The answer
// says which, and what to do.
#include "loader/select/nothing_legal.h"

#include <fmt/format.h>

#include <algorithm>

#include "loader/open/index.h"
#include "loader/support/absent.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {
namespace {

std::string TargetsOf(const fb::Index& index, uint32_t op) {
  std::vector<bool> has(Count(index.targets()));
  const RowRange entries = EntriesOfOp(index, op);
  for (uint32_t i = entries.first; i < entries.end; ++i) {
    has[index.entries()->Get(i)->target()] = true;
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
  const fb::Index& index = IndexOf(bundle);
  std::vector<uint64_t> found;
  const RowRange entries = EntriesOfOp(index, op);
  for (uint32_t i = entries.first; i < entries.end; ++i) {
    const fb::Entry& entry = *index.entries()->Get(i);
    const bool fits = std::any_of(targets.begin(), targets.end(),
                                  [&](const auto& t) { return t.target == entry.target(); });
    if (!fits) continue;
    if (std::find(found.begin(), found.end(), entry.types()) == found.end()) {
      found.push_back(entry.types());
    }
  }
  std::string text;
  for (uint64_t types : found) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", TypesText(OpOf(bundle, op), types));
  }
  return text;
}

}  // namespace

void Rejected::Add(const Bundle& bundle, uint32_t variant, const Legality& legality) {
  constexpr size_t kShown = 6;
  ++variants;
  by_policy |= legality.by_policy;
  by_mode |= legality.by_mode;
  if (reasons.size() > kShown) return;
  const fb::Index& index = IndexOf(bundle);
  const auto& row = *index.templates()->Get(index.variants()->Get(variant)->template_index());
  std::string reason = fmt::format("{}: {}", row.name()->string_view(), legality.reason);
  if (std::find(reasons.begin(), reasons.end(), reason) != reasons.end()) return;
  reasons.push_back(reasons.size() == kShown ? "and more" : std::move(reason));
}

Status NothingLegal(const Bundle& bundle, const Problem& problem, const Device& device,
                    const std::vector<RankedTarget>& targets, const Rejected& rejected) {
  const std::string asked = fmt::format("selecting for {} on {} from bundle '{}'",
                                        problem.ToString(), device.ToString(), bundle.path());
  if (rejected.variants != 0) {
    std::string message = fmt::format("{}: none of {} variants is legal: {}", asked,
                                      rejected.variants, fmt::join(rejected.reasons, "; "));
    if (rejected.by_policy) {
      return PermissionDenied(message +
                              "; the policy refuses code: relax it, or build and run conformance "
                              "for this device");
    }
    return NotFound(message + (rejected.by_mode
                                   ? "; ask for less (deterministic, batch_invariant), or add a "
                                     "variant that promises it"
                                   : "; add a variant whose `when` holds here"));
  }
  const std::string types = TypesOf(bundle, problem.op, targets);
  if (!types.empty()) {
    return NotFound(
        fmt::format("{}: it has code for {}, not for {}; convert the operands or add "
                    "the dtype to the op",
                    asked, types, TypesText(OpOf(bundle, problem.op), problem.types)));
  }
  return NotFound(
      fmt::format("{}: it has code for {}, none of which runs on {}; build with "
                  "--target for this device",
                  asked, TargetsOf(IndexOf(bundle), problem.op), device.ToString()));
}

}  // namespace kbundle
