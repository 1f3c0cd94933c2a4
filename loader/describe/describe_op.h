// What an op says without its variants, as JSON: parts of DescribeJson.
#ifndef KBUNDLE_LOADER_DESCRIBE_OP_H_
#define KBUNDLE_LOADER_DESCRIBE_OP_H_

#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"

namespace kbundle {

// Into an open object, from "types" to "tolerances".
void WriteInterface(JsonWriter& json, const fb::Op& op);

// Into an open object: "problems".
void WriteProblems(JsonWriter& json, const fb::Op& op);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_DESCRIBE_OP_H_
