// kbundle doctor: what this machine has for building and running bundles, whether it works, and
// what to do about the rest.
#ifndef KBUNDLE_BUILDER_CLI_DOCTOR_H_
#define KBUNDLE_BUILDER_CLI_DOCTOR_H_

#include <string>
#include <vector>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct DoctorCommand {
  std::vector<std::string> paths;  // manifests that are to be built here

  // kExitNo when something that a build needs is missing, or is there and does not work. What only
  // some providers need may be missing unless a manifest of `paths` has variants of theirs.
  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_DOCTOR_H_
