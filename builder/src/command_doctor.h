// kbundle doctor: what this machine has for building and running bundles, and what to do about the
// rest.
#ifndef KBUNDLE_BUILDER_COMMAND_DOCTOR_H_
#define KBUNDLE_BUILDER_COMMAND_DOCTOR_H_

#include "terminal.h"

namespace kbundle::builder {

struct DoctorCommand {
  bool json = false;

  // kExitEnvironment when something that `kbundle build` needs is missing.
  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMMAND_DOCTOR_H_
