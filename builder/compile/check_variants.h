// Compiled code against the manifest, for every variant that uses it.
#ifndef KBUNDLE_BUILDER_COMPILE_CHECK_VARIANTS_H_
#define KBUNDLE_BUILDER_COMPILE_CHECK_VARIANTS_H_

#include <optional>
#include <string>
#include <vector>

#include "builder/compile/parameter_types.h"
#include "builder/compile/work.h"
#include "builder/store/object.h"

namespace kbundle::builder {

// What keeps a variant out of a bundle, told once for all grid points that share its place.
struct Misfit {
  std::string text;  // "file:line:col: error: ..", with the line and a caret
  std::string variant;
  int others = 0;
};

// Kernels present, parameters as the steps pass them (compile/check_arguments.h), no more spill
// than the manifest allows. objects, types: by unit; types are empty where the symbols tell them.
std::vector<Misfit> CheckVariants(const Work& work, const std::vector<Object>& objects,
                                  const std::vector<ParameterTypes>& types);

// The first step whose execution plan the library does not make; its object's log says why. Such a
// variant is left out. objects: by unit.
std::optional<size_t> RefusedStep(const VariantUse& use, const std::vector<Object>& objects);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_CHECK_VARIANTS_H_
