// What an op's interface says, as JSON: the part of DescribeJson that needs no variant.
#ifndef KBUNDLE_LOADER_DESCRIBE_OP_H_
#define KBUNDLE_LOADER_DESCRIBE_OP_H_

#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"

namespace kbundle {

// Into an open object, from "types" to "problems".
void WriteInterface(JsonWriter& json, const fb::Op& op);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_DESCRIBE_OP_H_
