// Compiled code against the manifest, for every variant that uses it.
#ifndef KBUNDLE_BUILDER_CHECK_VARIANTS_H_
#define KBUNDLE_BUILDER_CHECK_VARIANTS_H_

#include <optional>
#include <vector>

#include "object.h"
#include "work.h"

namespace kbundle::builder {

// Kernels present, parameters as the steps pass them, no more spill than the manifest allows.
// objects: by unit. kInvalidArgument names manifest, line, variant, kernel and figures.
Status CheckVariant(const Work& work, const VariantUse& use, const std::vector<Object>& objects);

// The first step whose execution plan the library does not make; its object's log says why. Such a
// variant is left out. objects: by unit.
std::optional<size_t> RefusedStep(const VariantUse& use, const std::vector<Object>& objects);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CHECK_VARIANTS_H_
