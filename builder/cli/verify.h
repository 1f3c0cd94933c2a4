// kbundle verify: every byte of a bundle; with a target, whether each op and problem has code for
// it.
#ifndef KBUNDLE_BUILDER_CLI_VERIFY_H_
#define KBUNDLE_BUILDER_CLI_VERIFY_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct VerifyCommand {
  std::string file;      // or a folder, see builder/library
  std::string target;    // empty: bytes only
  std::string problems;  // a file of problems to check for the target instead of the listed ones
  bool strict = false;   // also refuses variants that conformance never ran

  int Run(const Terminal& terminal) const;

  struct Verdict {
    bool ok = false;   // nothing is missing
    std::string json;  // what --json prints
  };
  // The same without printing. Requires a target that can be parsed, or none.
  Result<Verdict> Look() const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_VERIFY_H_
