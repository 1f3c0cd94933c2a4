// What stands between `kbundle build` and its command line: the whole build as one function.
#ifndef KBUNDLE_BUILDER_PIPELINE_BUILD_H_
#define KBUNDLE_BUILDER_PIPELINE_BUILD_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "builder/support/reporter.h"
#include "kbundle/status.h"

namespace kbundle::builder {

struct BuildOptions {
  std::vector<std::string> paths;
  std::string output;
  std::string name;  // of the bundle; default: the output's file name without ".kb"
  std::vector<std::string>
      targets;   // "host": x86-64-v2, -v3, -v4; default: those, sm_80, sm_90a, sm_100f, portable
  int jobs = 0;  // 0: one per CPU
  std::string
      cache_dir;  // object store; default $KBUNDLE_CACHE, $XDG_CACHE_HOME/kbundle, ~/.cache/kbundle
  std::string shared_cache;  // a store behind it, FOLDER or FOLDER:ro; "": $KBUNDLE_SHARED_CACHE
  std::vector<std::string> providers;  // only these; empty: all
  std::string python;    // with Triton; see provider/triton/python.h for what is the default
  std::string only;      // a variant's id: compile just its code, write no bundle
  std::string problems;  // a file of problems to list beside those of the manifests
  std::string depfile;   // where to write which files were read: pipeline/depfile.h; "": nowhere
  bool keep_going = false, dry_run = false, explain = false;
  bool plan = false;        // like dry_run, and BuildReport::plan
  bool no_compile = false;  // what the store lacks is an error
  bool lean = false;        // only variants that can be chosen: pipeline/lean.h
  bool force = false;       // replace an output that is no bundle

  bool compiles() const { return !dry_run && !plan && !no_compile; }
  bool writes() const { return !dry_run && !plan && only.empty(); }  // a bundle
};

// One code object of a build, for --dry-run --json.
struct BuildUnit {
  std::string label;    // "mylib.normalize/warp_row[T=bf16]@sm_90a"
  std::string compile;  // why it has to be compiled; "" when the cache has it
};

struct BuildReport {
  int variants = 0, objects = 0, compiled = 0, reused = 0, failed = 0;
  uint64_t bundle_bytes = 0;
  double seconds = 0;
  int left_out = 0;                   // variants that cannot be chosen, of a lean build
  int stale_records = 0;              // tuning records left out: they speak of other code
  std::vector<std::string> warnings;  // as they were reported
  std::vector<BuildUnit> units;       // of a dry run
  std::string plan;                   // pipeline/build_plan.h
  std::string ToJson() const;
};

// `cancel` (set by SIGINT) makes the build finish running compiles, keep what is done and return
// kCancelled; the next build resumes from the store. The output is written only when complete.
Result<BuildReport> Build(const BuildOptions& options, Reporter& reporter,
                          const std::atomic<bool>& cancel);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_BUILD_H_
