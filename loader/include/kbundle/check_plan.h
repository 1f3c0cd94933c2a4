// Whether a plan would be made: what MakePlan computes before it loads any code.
#ifndef KBUNDLE_CHECK_PLAN_H_
#define KBUNDLE_CHECK_PLAN_H_

#include "kbundle/bundle.h"
#include "kbundle/problem.h"
#include "kbundle/target.h"

namespace kbundle {

// Launch geometry, arguments, workspace and sizes of the variant for this problem on such a device,
// with MakePlan's errors and the variant's id. Pure.
Status CheckPlan(const Bundle& bundle, const Problem& problem, const Device& device,
                 uint32_t variant, int64_t alignment);

}  // namespace kbundle

#endif  // KBUNDLE_CHECK_PLAN_H_
