// What only a step of CuTe DSL has in a manifest.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_MANIFEST_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_MANIFEST_H_

#include "builder/manifest/tables.h"

namespace kbundle::builder {

// `cute`: the function's name; `args`: what it gets. Until its launches are learned the step stands
// for one block without arguments.
void ReadCuteStep(StepTable& table);

// An expression over a step's names, as if the manifest had it: an integer. kInternal: it is none.
Result<Program> CompileText(const std::string& text, const Op& op, const Template& variant,
                            const Names& names, const Place& place);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_MANIFEST_H_
