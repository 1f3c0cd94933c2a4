// One op under check, and its rows.
#ifndef KBUNDLE_LOADER_VERIFY_OP_ROWS_H_
#define KBUNDLE_LOADER_VERIFY_OP_ROWS_H_

#include <cstdint>
#include <vector>

#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"
#include "kbundle/status.h"
#include "loader/provider/provider.h"
#include "loader/support/rows_of_op.h"
#include "loader/verify/structure.h"

namespace kbundle {

enum class Depth : uint8_t;
class SoundParts;

// Borrows everything. The outline has been checked.
struct OpRows {
  const Header& header;
  Structure& structure;
  const uint32_t number;
  const fb::Index& index = structure.index();
  const fb::Op& op = *index.ops()->Get(number);
  const IndexPages& pages = structure.pages();
  const fb::Part* part = PartOf(index, number);  // null: what is here is all of an index
  std::vector<bool> symbols = {};                // those of Index.symbols that were found good
  std::vector<const Provider*> providers = {};   // by their numbers in the index
};

// In this order: each uses what the one before has checked.
Status VerifyEntriesOf(
    const OpRows& rows);  // that they cover the op's variants, whose keys they have
Status VerifyTemplatesOf(const OpRows& rows);
Status VerifyVariantsOf(OpRows& rows);  // kernels and symbols with them
Status VerifyTunedOf(const OpRows& rows);

// One of these rows, all that there is to say of it alone, or as much as that.
Status VerifyTemplateOf(const OpRows& rows, uint32_t number, Depth depth, SoundParts* sound);
Status CheckTemplateNumber(const OpRows& rows, const fb::Variant& variant);
// Its template has been checked, to the same depth.
Status VerifyVariantOf(OpRows& rows, const fb::Variant& variant, Depth depth);

// Of all ops: sorted, and each row of an op that exists, so that an op's are a range.
Status VerifyOps(const fb::Index& index);
Status VerifyEntries(const fb::Index& index);
Status VerifyTunedDevices(const fb::Index& index);
Status VerifyTuned(const fb::Index& index);
Status VerifyEvidence(const fb::Evidence& row, const fb::Index& index);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_VERIFY_OP_ROWS_H_
