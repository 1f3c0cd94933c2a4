// kbundle new: a library to start from, that builds, tests and packs as it stands.
#ifndef KBUNDLE_BUILDER_CLI_NEW_H_
#define KBUNDLE_BUILDER_CLI_NEW_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct NewCommand {
  std::string name;
  std::string into = ".";  // the folder `name` appears in it

  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_NEW_H_
