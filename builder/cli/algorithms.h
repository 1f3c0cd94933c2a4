// kbundle algorithms: what cuBLASLt's heuristic answers on this machine's GPU and what is faster
// near that, as files beside the manifests.
#ifndef KBUNDLE_BUILDER_CLI_ALGORITHMS_H_
#define KBUNDLE_BUILDER_CLI_ALGORITHMS_H_

#include <string>

#include "builder/cli/terminal.h"
#include "builder/provider/cublaslt/list.h"

namespace kbundle::builder {

struct AlgorithmsCommand {
  ListOptions options;
  std::string output;  // empty: algorithms/<device>.jsonl where the variants say; "-": stdout

  // kExitEnvironment without a GPU, a driver or cuBLAS.
  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_ALGORITHMS_H_
