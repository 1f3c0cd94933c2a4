// The index of a bundle, row by row: verified, so every number may be used. Of a bundle that was
// opened with Checks::kByOp only those of ops that FindOp has answered for.
#ifndef KBUNDLE_LOADER_INDEX_H_
#define KBUNDLE_LOADER_INDEX_H_

#include <cstdint>

#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"

namespace kbundle {

// Both live as long as the bundle.
const fb::Index& IndexOf(const Bundle& bundle);
const fb::Op& OpOf(const Bundle& bundle, uint32_t op);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_INDEX_H_
