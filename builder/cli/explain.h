// kbundle explain: which variant a problem gets on a target, and why not the others.
#ifndef KBUNDLE_BUILDER_CLI_EXPLAIN_H_
#define KBUNDLE_BUILDER_CLI_EXPLAIN_H_

#include <string>
#include <vector>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct ExplainCommand {
  std::string file, op;                 // file: or a folder, see builder/library
  std::vector<std::string> operands;    // "x=bf16[4,2048]"; optional ones may be left out
  std::vector<std::string> attributes;  // "scale=0.125"
  std::string target;                   // empty: this machine's CPU
  int64_t sm_count = 0;                 // multiprocessors of the GPU; 0: as on an H200
  int64_t alignment = 16;               // bytes that every address is known to be a multiple of
  bool strict = false;
  bool deterministic = false, batch_invariant = false;

  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_EXPLAIN_H_
