// What was learned of a step: its launches, as the child says them (template.py) and as steps.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_LAUNCH_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_LAUNCH_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// A tensor map has 128 bytes, of which CuTe DSL's host code writes the first half alone. In the
// other is what its stack held, addresses and all: the GPU does not look at it, and it is 0 here.
inline constexpr size_t kTensorMapBytes = 128, kTensorMapWritten = 64;
bool IsTensorMap(const StructArg& parameter);
// The launches, as the child learned them, with that half of each map 0: what is kept of an object
// is the same in every build. Throws what the JSON library throws where they are damaged.
nlohmann::json WithoutStack(nlohmann::json launches);

// "forward" of a function with one launch, "forward.2" of the second of several.
std::string CuteKernelName(const std::string& function, size_t launch, size_t launches);

// Kernel steps with struct arguments, whose expressions are compiled over the names of `step`.
// kInternal: not the child's text, or an expression that the language does not have.
Result<std::vector<Step>> CuteSteps(const nlohmann::json& launches, const Op& op,
                                    const Template& variant, const Step& step);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_LAUNCH_H_
