// From Select's ordered list to a plan: the first variant that resolves, fits the workspace and
// loads, once for each alignment class.
#ifndef KBUNDLE_LOADER_CHOOSE_H_
#define KBUNDLE_LOADER_CHOOSE_H_

#include <memory>
#include <string>

#include "kbundle/bundle.h"
#include "kbundle/plan.h"
#include "kbundle/select.h"
#include "loader/plan/plan_builder.h"

namespace kbundle {

struct ChosenPlan {
  std::unique_ptr<Plan> plan;
  std::string reason;        // why the first class's variant, and what was passed over
  bool passed_over = false;  // what comes before it in the order did not load or fit here
};

// Variants are passed over, each with its reason, when this device or this problem does not suit
// them. Damaged bytes and a bundle that contradicts itself are never worked around: those errors
// are returned at once. kResourceExhausted: no variant fits options.workspace_limit; it names the
// smallest need.
Result<ChosenPlan> ChoosePlan(const Bundle& bundle, const Problem& problem, const Device& device,
                              const PlanOptions& options, const Policy::Snapshot& policy,
                              PlanBuilder& builder);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CHOOSE_H_
