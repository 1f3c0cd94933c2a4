// What a bundle says about its making: versions and short digests; no path, clock, user or host.
#ifndef KBUNDLE_BUILDER_PACK_PROVENANCE_H_
#define KBUNDLE_BUILDER_PACK_PROVENANCE_H_

#include <string>
#include <utility>
#include <vector>

#include "builder/compile/compile.h"

namespace kbundle::builder {

// Its row: how many tuning records were left out, where any were.
inline constexpr char kStaleRecords[] = "stale tuning records";

// Of the compilers that the build used.
Result<std::vector<std::pair<std::string, std::string>>> Provenance(const CompileContext& context,
                                                                    ToolDigests* digests);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_PROVENANCE_H_
