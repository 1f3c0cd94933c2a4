// What only a step of Warp has in a manifest.
#ifndef KBUNDLE_BUILDER_PROVIDER_WARP_MANIFEST_H_
#define KBUNDLE_BUILDER_PROVIDER_WARP_MANIFEST_H_

#include "builder/manifest/tables.h"

namespace kbundle::builder {

// The kernel's name and `dim`, `block_dim`, `tiled`, `grain`: how it is launched.
void ReadWarpLaunch(StepTable& table);
// `args`, `adjoint` and `adjoints`: what it is given.
void ReadWarpArguments(StepTable& table);
// When all steps are read: that gradients which Warp adds to have a value.
void CheckWarpGradients(VariantTable& table);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_WARP_MANIFEST_H_
