// Launches against what GPUs of a target can launch: a block of 4096 threads or a grid of 131072 in
// y would fail where the bundle is used, on every machine there is. Told for numbers that a grid
// point fixes, and for the listed problems that the variant takes; of a host kernel that its range
// and grain are numbers.
#ifndef KBUNDLE_BUILDER_COMPILE_CHECK_LAUNCH_H_
#define KBUNDLE_BUILDER_COMPILE_CHECK_LAUNCH_H_

#include <vector>

#include "builder/compile/check_arguments.h"
#include "kbundle/target.h"

namespace kbundle::builder {

// steps: all of the variant, in order.
std::vector<Finding> CheckLaunches(const Op& op, const Template& variant,
                                   const Template::Point& point, const Target& target,
                                   const std::vector<StepKernel>& steps);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_CHECK_LAUNCH_H_
