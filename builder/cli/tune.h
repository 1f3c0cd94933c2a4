// `kbundle tune`, of which `--check` is cli/tune_check.h.
#ifndef KBUNDLE_BUILDER_CLI_TUNE_H_
#define KBUNDLE_BUILDER_CLI_TUNE_H_

#include <atomic>
#include <string>

#include "builder/cli/terminal.h"
#include "builder/tune/tune.h"

namespace kbundle::builder {

struct TuneCommand {
  TuneOptions options;
  bool check = false;  // measure nothing: look at the records
  std::string target;
  std::string device;          // GPUs, as ShowGpus takes them; "": the first that there is
  std::string budget;          // "10m"
  double candidate_limit = 0;  // seconds; 0: the default
  int compile_limit = 0;
  int memory_mib = 0;

  // Exit 1: with --only, a candidate failed; else a problem that ends without a right candidate.
  // Exit 2: options that do not go together.
  int Run(const Terminal& terminal, const std::atomic<bool>& cancel) const;

 private:
  int CheckRecords(const Terminal& terminal) const;
  // What is wrong with the options; "" when they go together.
  std::string Misuse() const;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CLI_TUNE_H_
