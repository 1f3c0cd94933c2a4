// What a launch of a variant is made of, as JSON: the numbers that Resolve gives, with the names
// that the manifest gave them. Needs no device.
#ifndef KBUNDLE_LOADER_EXPLAIN_LAUNCH_H_
#define KBUNDLE_LOADER_EXPLAIN_LAUNCH_H_

#include "kbundle/bundle.h"
#include "kbundle/json.h"

namespace kbundle {

// Writes the value of "launch" (kbundle_c.h, kb_explain): an object, with "error" where the variant
// cannot be launched for this problem.
void WriteLaunch(JsonWriter& json, const Bundle& bundle, const Problem& problem,
                 const Device& device, uint32_t variant, int64_t alignment);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_EXPLAIN_LAUNCH_H_
