// kbundle profile: this machine's GPU as the file that cuDNN's plans are made against elsewhere.
#ifndef KBUNDLE_BUILDER_CLI_PROFILE_H_
#define KBUNDLE_BUILDER_CLI_PROFILE_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct ProfileCommand {
  std::string output;  // "-": standard output
  bool force = false;  // replace a file that is no profile
  int device = 0;

  // kExitEnvironment without a GPU, a driver or cuDNN.
  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_PROFILE_H_
