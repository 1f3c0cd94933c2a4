// `kbundle tune`.
#ifndef KBUNDLE_BUILDER_COMMAND_TUNE_H_
#define KBUNDLE_BUILDER_COMMAND_TUNE_H_

#include <atomic>
#include <string>

#include "terminal.h"
#include "tune.h"

namespace kbundle::builder {

struct TuneCommand {
  TuneOptions options;
  std::string target;
  std::string budget;          // "10m"
  double candidate_limit = 0;  // seconds; 0: the default
  int compile_limit = 0;
  int memory_mib = 0;
  bool json = false;

  // Exit 1: with --only, a candidate failed; else a problem that ends without a right candidate.
  int Run(const Terminal& terminal, const std::atomic<bool>& cancel) const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMMAND_TUNE_H_
