// kbundle bench: what opening, selecting, loading and launching cost on this machine, each beside
// its bar.
#ifndef KBUNDLE_BUILDER_CLI_BENCH_H_
#define KBUNDLE_BUILDER_CLI_BENCH_H_

#include <string>

#include "builder/cli/terminal.h"

namespace kbundle::builder {

struct BenchCommand {
  std::string file;
  int rounds = 21;     // of each measurement, interleaved; the median counts
  bool check = false;  // kExitNo when a bar is missed
  bool json = false;

  int Run(const Terminal& terminal) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_BENCH_H_
