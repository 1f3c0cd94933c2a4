// A problem as JSON, the form of records, of `--problems` files and of the tuner's own messages:
//
//   {"op": "mylib.normalize", "operands": {"x": "bf16[16,2048]"}, "attributes": {"scale": 0.5}}
//
// Operands that are left out are absent; attributes that are left out have their defaults.
#ifndef KBUNDLE_BUILDER_PROBLEM_JSON_H_
#define KBUNDLE_BUILDER_PROBLEM_JSON_H_

#include <nlohmann/json.hpp>

#include "kbundle/bundle.h"

namespace kbundle::builder {

// kInvalidArgument says which part is not as above; kNotFound: the bundle has no such op.
Result<Problem> ProblemFromJson(const Bundle& bundle, const nlohmann::json& json);
// Every attribute is written, defaults too.
nlohmann::json ProblemToJson(const Bundle& bundle, const Problem& problem);
// The attributes alone, as a reference function takes them.
nlohmann::json AttributesToJson(const Bundle& bundle, const Problem& problem);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_JSON_H_
