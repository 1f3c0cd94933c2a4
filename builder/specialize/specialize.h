// What `kbundle specialize` does, without its command line: everything that a model's problems need
// to be the fastest here. May be killed at any time and started again.
#ifndef KBUNDLE_BUILDER_SPECIALIZE_SPECIALIZE_H_
#define KBUNDLE_BUILDER_SPECIALIZE_SPECIALIZE_H_

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "builder/specialize/model_choice.h"
#include "builder/support/reporter.h"

namespace kbundle::builder {

struct SpecializeOptions {
  std::string model;               // problems, as record_problems saves them
  std::vector<std::string> paths;  // of op families; those that the model does not use do not count
  std::string target, output;      // target: of this machine, "host" its CPU
  std::string python, cache_dir;   // as of TuneOptions
  int jobs = 0;
  int gpus = 1;       // that tune side by side; algorithms are listed and variants run on the first
  bool lean = false;  // as of BuildOptions
};

struct Specialized {
  std::vector<ModelChoice> before, after;  // of the model's problems, in its order
  std::vector<std::string> manifests;      // of the families that it uses
  std::string problems;                    // the lines of the model that are of them
  std::set<std::string> written;           // beside the manifests, to be committed
  std::string kept;                        // the file that keeps `before` until all is well
};

// The output is built. Errors name the model's line, the family or the device; kCancelled, like a
// kill, loses at most what is being measured.
Result<Specialized> Specialize(const SpecializeOptions& options, Reporter& reporter,
                               const std::atomic<bool>& cancel);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SPECIALIZE_SPECIALIZE_H_
