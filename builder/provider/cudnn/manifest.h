// What only variants of cuDNN have in a manifest.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_MANIFEST_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_MANIFEST_H_

#include "builder/manifest/tables.h"

namespace kbundle::builder {

// `profile`, `cudnn`, `plans`, `max_workspace`: what its plans are made with and for.
void ReadPlanKeys(VariantTable& table);
// A step with `graph`, which cuDNN plans.
void ReadGraph(StepTable& table);
// When all steps are read: the tunables and conditions that tie a point to one problem.
void TieToProblems(const Op& op, Template& variant);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_MANIFEST_H_
