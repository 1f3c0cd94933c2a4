// What was learned of a step: its launches, as the child says them (template.py) and as steps.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_LAUNCH_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_LAUNCH_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// "forward" of a function with one launch, "forward.2" of the second of several.
std::string CuteKernelName(const std::string& function, size_t launch, size_t launches);

// Kernel steps with struct arguments, whose expressions are compiled over the names of `step`.
// kInternal: not the child's text, or an expression that the language does not have.
Result<std::vector<Step>> CuteSteps(const nlohmann::json& launches, const Op& op,
                                    const Template& variant, const Step& step);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_LAUNCH_H_
