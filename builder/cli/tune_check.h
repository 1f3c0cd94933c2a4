// `kbundle tune --check`.
#ifndef KBUNDLE_BUILDER_CLI_TUNE_CHECK_H_
#define KBUNDLE_BUILDER_CLI_TUNE_CHECK_H_

#include "builder/cli/terminal.h"
#include "builder/tune/check.h"

namespace kbundle::builder {

struct TuneCheckCommand {
  TuneCheckOptions options;

  // Exit 1: a record is missing, stale or refused.
  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_TUNE_CHECK_H_
