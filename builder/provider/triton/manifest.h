// What only a Triton step has in a manifest.
#ifndef KBUNDLE_BUILDER_PROVIDER_TRITON_MANIFEST_H_
#define KBUNDLE_BUILDER_PROVIDER_TRITON_MANIFEST_H_

#include "builder/manifest/tables.h"

namespace kbundle::builder {

// The function's name, grid, options and constexprs.
void ReadTritonLaunch(StepTable& table);
// When the arguments are read: the hints, which become conditions of the variant.
void ReadTritonHints(StepTable& table);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_TRITON_MANIFEST_H_
