// kbundle build: manifests and sources into one bundle. See pipeline/build.h for the work itself.
#ifndef KBUNDLE_BUILDER_CLI_BUILD_H_
#define KBUNDLE_BUILDER_CLI_BUILD_H_

#include <atomic>

#include "builder/cli/terminal.h"
#include "builder/pipeline/build.h"

namespace kbundle::builder {

// Of a command line: targets and providers that there are.
Status CheckNames(const BuildOptions& options);

struct BuildCommand {
  BuildOptions options;

  // `cancel` is set by the first Ctrl-C.
  int Run(const Terminal& terminal, const std::atomic<bool>& cancel) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_BUILD_H_
