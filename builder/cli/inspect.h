// kbundle inspect: what is inside a bundle.
#ifndef KBUNDLE_BUILDER_CLI_INSPECT_H_
#define KBUNDLE_BUILDER_CLI_INSPECT_H_

#include <string>

#include "builder/cli/terminal.h"
#include "kbundle/parts.h"

namespace kbundle::builder {

struct InspectCommand {
  std::string file;    // or a folder, see builder/library
  std::string op;      // empty: an overview of all; else every variant of this one
  std::string html;    // a file to draw it into, "-" standard output; empty: none
  bool force = false;  // replace a file that is no such page

  int Run(const Terminal& terminal) const;

 private:
  int Draw(const Parts& library, const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_INSPECT_H_
