// The bytes of an index, laid out so that a reader of one op reads a few pages of it.
#ifndef KBUNDLE_BUILDER_PACK_INDEX_BYTES_H_
#define KBUNDLE_BUILDER_PACK_INDEX_BYTES_H_

#include <cstdint>
#include <string>

#include "kbundle/bundle_generated.h"

namespace kbundle::builder {

struct IndexBytes {
  std::string bytes;
  uint64_t pages_size = 0;  // the last of them; 0 where there is no op
};

// With op_names and parts. Evidence must be of one op alone. The size does not depend on numbers in
// rows of structs.
IndexBytes WriteIndexBytes(const fb::IndexT& index);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_INDEX_BYTES_H_
