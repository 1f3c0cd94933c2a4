// The bytes of an index, in which equal tables stand once.
#ifndef KBUNDLE_BUILDER_PACK_SHARED_TABLES_H_
#define KBUNDLE_BUILDER_PACK_SHARED_TABLES_H_

#include <string>

#include "kbundle/bundle_generated.h"

namespace kbundle::builder {

// What fb::Index::Pack would write, with one table where several rules, arguments, structs or parts
// of problems say the same; or just that, where readers would count more tables than they take.
std::string IndexBytes(const fb::IndexT& index);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_SHARED_TABLES_H_
