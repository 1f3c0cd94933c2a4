// What `kbundle build --plan` prints: one JSON document, a line for each unit, from which whatever
// starts processes can spread a build, each unit by a command of its own.
//
//   {"build_plan": 1,                   version of this layout
//    "tools": {"kbundle": "0.1.0", "nvrtc": "13.0 sha256:..", ..},
//    "environment": {"KBUNDLE_CXX": null, ..},     what was set where the plan was made
//    "variants": 5, "missing": 4,       of the build; units that the cache lacks
//    "problems": "", "providers": [], "python": "",        as they were given
//    "families": [{"manifest": "tiny/tiny.toml", "name": "tiny",
//                  "files": [{"file": "tiny.toml", "sha256": ".."}]}],      what was read of it
//    "units": [{
//      "number": 0, "unit": "tiny/scale.cc@x86-64-v3", "target": "x86-64-v3", "family": "tiny",
//      "manifests": ["tiny/tiny.toml"], "source": "scale.cc", "compiler": "c++",
//      "key": "3f..",                   under which the object is kept
//      "stored": false, "why": "first build",
//      "inputs": [{"name": "rows.h",    all that the key is made of, and the toolkit's headers
//                  "digest": "0a..",    SHA-256 of what is compared: a source's text with its
//                                       #includes resolved, a tool's binaries, a list of flags
//                  "file": "rows.h",    of the author's files: relative to the family's folder
//                  "sha256": "77.."}],  and of its bytes as they lie there
//      "environment": ["KBUNDLE_CXX"],  which of the above its compiler looks at
//      "command": ["kbundle", "compile-unit", ..],   makes it; names no store
//      "compiler_command": "g++ .."     what the compiler is told, where a shell can say it; or ""
//    }]}
//
// Paths are relative to the working folder, as they were given, so that the commands run in a copy
// of it; those that leave it are absolute.
#ifndef KBUNDLE_BUILDER_PIPELINE_BUILD_PLAN_H_
#define KBUNDLE_BUILDER_PIPELINE_BUILD_PLAN_H_

#include <string>

#include "builder/pipeline/build_work.h"
#include "builder/pipeline/compile_all.h"

namespace kbundle::builder {

inline constexpr int kBuildPlanVersion = 1;

// `units` have been looked up. The same inputs and store give the same text.
Result<std::string> BuildPlan(const BuildOptions& options, BuildWork& asked,
                              const UnitBuilder& units, const CompileContext& context,
                              ToolDigests* digests);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_BUILD_PLAN_H_
