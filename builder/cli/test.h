// `kbundle test`.
#ifndef KBUNDLE_BUILDER_CLI_TEST_H_
#define KBUNDLE_BUILDER_CLI_TEST_H_

#include <atomic>
#include <optional>
#include <string>

#include "builder/cli/terminal.h"
#include "builder/conformance/conformance.h"

namespace kbundle::builder {

struct TestCommand {
  ConformanceOptions options;
  std::optional<uint64_t> seed;  // of the inputs; none: another each time
  double candidate_limit = 0;    // seconds; 0: the default
  int memory_mib = 0;            // likewise

  // Exit 1: a variant is wrong, took its process down, has no code, or was launched on no problem.
  int Run(const Terminal& terminal, const std::atomic<bool>& cancel) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_TEST_H_
