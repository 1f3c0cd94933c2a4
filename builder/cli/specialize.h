// kbundle specialize: lists, tunes, builds and verifies for a model's problems, and prints before
// and after. See specialize/specialize.h for the work itself.
#ifndef KBUNDLE_BUILDER_CLI_SPECIALIZE_H_
#define KBUNDLE_BUILDER_CLI_SPECIALIZE_H_

#include <atomic>
#include <string>

#include "builder/cli/terminal.h"
#include "builder/specialize/specialize.h"

namespace kbundle::builder {

struct SpecializeCommand {
  SpecializeOptions options;  // no paths: "kernels"
  std::string device;         // GPUs, as ShowGpus takes them; empty: the first that there is

  // kExitNo: a problem has no variant, or none that conformance ran.
  int Run(const Terminal& terminal, const std::atomic<bool>& cancel) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_SPECIALIZE_H_
