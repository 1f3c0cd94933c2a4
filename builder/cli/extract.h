// kbundle extract: a code object as the file that cuobjdump, nvdisasm, objdump and profilers read.
#ifndef KBUNDLE_BUILDER_CLI_EXTRACT_H_
#define KBUNDLE_BUILDER_CLI_EXTRACT_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct ExtractCommand {
  std::string file;
  std::string
      variant;         // an id as `inspect` prints it; "@target" may be left out where it is unique
  std::string output;  // "-": standard output
  bool force = false;  // replace a file that is no code object
  int step = 0;        // 1-based; 0: the variant's only code object

  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_EXTRACT_H_
