// An op as JSON, a part of DescribeJson, and what it has in common with ExplainJson.
#ifndef KBUNDLE_LOADER_OP_JSON_H_
#define KBUNDLE_LOADER_OP_JSON_H_

#include <vector>

#include "kbundle/description.h"
#include "kbundle/json.h"

namespace kbundle {

// Into an open object, from "types" to "tolerances".
void WriteInterface(JsonWriter& json, const OpDescription& op);

// Into an open object: "problems".
void WriteProblems(JsonWriter& json, const OpDescription& op);

// Into an open object: "absent".
void WriteAbsent(JsonWriter& json, const std::vector<AbsentPart>& absent);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_OP_JSON_H_
