// Where a bundle may be written.
#ifndef KBUNDLE_BUILDER_PIPELINE_OUTPUT_H_
#define KBUNDLE_BUILDER_PIPELINE_OUTPUT_H_

#include <string>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// kInvalidArgument, kFailedPrecondition: the output is standard output, a device or folder, or a
// file that is no bundle. `force` allows the last, but for files in a family's folder: those are
// what bundles are made of.
Status CheckBundleOutput(const std::string& output, const std::vector<Family>& families,
                         bool force);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_OUTPUT_H_
