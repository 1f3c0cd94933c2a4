// A rule cannot say everything: an argument may not fit its type for sizes that nobody thought of.
// Such variants are passed over here, as a plan does.
#include "loader/select/launchable.h"

#include <fmt/format.h>

#include <utility>

#include "loader/resolve/check_geometry.h"

namespace kbundle {

Result<Launchable> SelectLaunchable(const Bundle& bundle, const Problem& problem,
                                    const Device& device, const SelectOptions& options) {
  KB_ASSIGN_OR_RETURN(std::vector<Selected> legal, Select(bundle, problem, device, options));
  Launchable result;
  for (const Selected& selected : legal) {
    const auto resolution =
        ResolveToLaunch(bundle, problem, device, selected.variant, options.alignment);
    // What a batch of another size would get may not be passed over for this one's size.
    const bool stands =
        options.modes.batch_invariant && result.order.empty() && !result.passed_over.empty();
    if (stands) {
      result.passed_over.push_back(
          {selected, "batches of every size get the first variant or none (batch_invariant)"});
    } else if (resolution.ok()) {
      result.order.push_back(selected);
    } else {
      result.passed_over.push_back({selected, resolution.status().message()});
    }
  }
  return result;
}

Result<Selected> SelectFirstLaunchable(const Bundle& bundle, const Problem& problem,
                                       const Device& device, const SelectOptions& options) {
  KB_ASSIGN_OR_RETURN(const Selected first, SelectFirst(bundle, problem, device, options));
  if (ResolveToLaunch(bundle, problem, device, first.variant, options.alignment).ok()) return first;
  KB_ASSIGN_OR_RETURN(const Launchable all, SelectLaunchable(bundle, problem, device, options));
  if (!all.order.empty()) return all.order.front();
  std::string reasons;
  for (const NotLaunchable& one : all.passed_over) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ",
                           bundle.VariantId(one.selected.variant), one.reason);
  }
  return OutOfRange(fmt::format("choosing a variant for {}: none that is legal can be launched: {}",
                                problem.ToString(), reasons));
}

}  // namespace kbundle
