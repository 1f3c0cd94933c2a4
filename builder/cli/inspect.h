// kbundle inspect: what is inside a bundle.
#ifndef KBUNDLE_BUILDER_CLI_INSPECT_H_
#define KBUNDLE_BUILDER_CLI_INSPECT_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct InspectCommand {
  std::string file;
  std::string op;  // empty: an overview of all; else every variant of this one
  bool json = false;

  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_INSPECT_H_
