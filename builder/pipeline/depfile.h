// What a build read, as make and ninja take it: so that a build system asks for the bundle again
// when one of these files has changed, and not otherwise.
#ifndef KBUNDLE_BUILDER_PIPELINE_DEPFILE_H_
#define KBUNDLE_BUILDER_PIPELINE_DEPFILE_H_

#include <string>
#include <vector>

#include "builder/compile/unit_key.h"
#include "builder/model/family.h"
#include "builder/pipeline/build.h"

namespace kbundle::builder {

// "OUT.kb: FILE...": each file once, sorted, with an absolute path: manifests and what they name,
// sources, every header of theirs that is a file, --problems. Not the files that a build looks for
// beside a manifest (tuning/, ran_on.jsonl), which may come and go.
std::string DepfileText(const BuildOptions& options, const std::vector<Family>& families,
                        const std::vector<UnitInputs>& inputs);

// Before a build: OK when options.depfile is free, or a list of the same output, or --force is
// given.
Status CheckDepfile(const BuildOptions& options);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_DEPFILE_H_
