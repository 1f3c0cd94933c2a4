// Ranges of Index.variants.
#ifndef KBUNDLE_LOADER_VARIANT_ROWS_H_
#define KBUNDLE_LOADER_VARIANT_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "kbundle/bundle_generated.h"
#include "kbundle/key.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {

using VariantRange = RowRange;

// The entry of this key by number, which has variants; none where there is no code. Requires the
// op's interface to be checked.
std::optional<uint32_t> EntryOf(const fb::Index& index, const EntryKey& key);
// All of an op: every target, every dtype.
VariantRange VariantsOf(const fb::Index& index, uint32_t op);
// Whether a library's heuristic completes it when a plan is made: an own step has no blob.
bool Asks(const fb::Index& index, uint32_t variant);
// Bytes of workspace that an own step takes for itself, a multiple of kWorkspaceAlignment.
int64_t StepWorkspace(const fb::Kernel& row);
// "VEC=8, THREADS=128".
std::string TunablesText(const fb::Index& index, uint32_t variant);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_VARIANT_ROWS_H_
