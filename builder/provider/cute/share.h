// What a step says that it depends on, of all that its variant chooses.
//
// A kernel that prepares or finishes another depends on a part of it. Where its step names that
// part, points and variants that agree in it have one unit: compiled, recorded and proved once, by
// problems that meet the conditions that the step relies on, as those of every such variant do.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_SHARE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_SHARE_H_

#include <cstdint>
#include <vector>

#include "builder/manifest/tables.h"
#include "builder/provider/cute/kernel.h"

namespace kbundle::builder {

// `uses` and `relies_on` of a step whose arguments are read. Reports what it depends on without
// saying so.
void ReadShare(StepTable& table, CuteKernel* kernel);

// Whether a point of the grid decides the program's value.
bool IsFixed(const Program& program, const Template& variant);
// By let, its value at a point that fixes it; 0 of others.
std::vector<int64_t> FixedLets(const Template& variant, const Template::Point& point);

// By let and by region of the variant, whether the step needs it.
struct CuteNeeds {
  std::vector<bool> lets, regions;
};
CuteNeeds NeedsOf(const Template& variant, const Step& step, const CuteKernel& kernel);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_SHARE_H_
