// An op as JSON: a part of DescribeJson.
#ifndef KBUNDLE_LOADER_OP_JSON_H_
#define KBUNDLE_LOADER_OP_JSON_H_

#include "kbundle/description.h"
#include "kbundle/json.h"

namespace kbundle {

// Into an open object, from "types" to "tolerances".
void WriteInterface(JsonWriter& json, const OpDescription& op);

// Into an open object: "problems".
void WriteProblems(JsonWriter& json, const OpDescription& op);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_OP_JSON_H_
