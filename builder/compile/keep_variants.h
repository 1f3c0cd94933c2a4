// A build of some of its variants.
#ifndef KBUNDLE_BUILDER_COMPILE_KEEP_VARIANTS_H_
#define KBUNDLE_BUILDER_COMPILE_KEEP_VARIANTS_H_

#include <vector>

#include "builder/compile/work.h"

namespace kbundle::builder {

// Leaves these variants of `work`, with ranks as they were, and the units that they need. Units
// stay as they are, so that the store serves both builds.
void KeepVariants(std::vector<VariantUse> kept, Work* work);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_KEEP_VARIANTS_H_
