// What `kbundle doctor` looks for, and what it says of each.
#ifndef KBUNDLE_BUILDER_CLI_DOCTOR_FINDINGS_H_
#define KBUNDLE_BUILDER_CLI_DOCTOR_FINDINGS_H_

#include <string>
#include <vector>

#include "builder/tools/finding.h"

namespace kbundle::builder {

// Tries all tools at once; takes as long as the slowest, some three seconds.
// manifests: families whose providers and compilers become required besides what every build needs.
std::vector<Finding> LookAround(const std::vector<std::string>& manifests);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_DOCTOR_FINDINGS_H_
