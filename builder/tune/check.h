// Do committed records still answer for today's manifests and code? Needs compilers, no device.
#ifndef KBUNDLE_BUILDER_TUNE_CHECK_H_
#define KBUNDLE_BUILDER_TUNE_CHECK_H_

#include <map>
#include <string>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

struct TuneCheckOptions {
  std::vector<std::string> paths;
  std::string target;  // "": each that a record names, or sm_90a; "host": this CPU's
  std::string cache_dir;
  int jobs = 0;
  std::string op;             // only this one; "" all
  std::string problems_file;  // JSON lines, instead of the problems that the manifests list
  std::string python;         // with Triton, as `kbundle build --python`
};

struct StaleRecord {
  std::string record;            // "path: op problem (device)"
  std::vector<std::string> why;  // one sentence a finding
};

struct TargetCheck {
  std::string target;
  int problems = 0;                  // listed, with something to choose from
  int records = 0;                   // of this target
  std::vector<std::string> missing;  // listed problems without a record that can be used
  // Families that were never tuned for this target beside some that were, and how many problems:
  // what they list is not missing, manifest order is their choice.
  std::map<std::string, int> untuned;
  std::vector<StaleRecord> stale;
  std::vector<StaleRecord> refused;  // of a device that cannot run the target
  std::vector<std::string> notes;    // worth knowing, and no fault
  bool ok() const { return missing.empty() && stale.empty() && refused.empty(); }
};

// Compiles what the records name, through the object store. An error of a record's file names file
// and line.
Result<std::vector<TargetCheck>> CheckTuning(const TuneCheckOptions& options);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_CHECK_H_
