// One unit of a build, made into a store by itself: how a build is spread over processes and
// machines. `kbundle build` then finds it there and compiles nothing.
#ifndef KBUNDLE_BUILDER_PIPELINE_COMPILE_UNIT_H_
#define KBUNDLE_BUILDER_PIPELINE_COMPILE_UNIT_H_

#include <cstdint>
#include <string>

#include "builder/compile/unit_key.h"
#include "builder/pipeline/build.h"

namespace kbundle::builder {

// Which one. At least one of label and key is said.
struct WantedUnit {
  std::string label;    // as --plan and --dry-run name it
  std::string key;      // that it must have here
  NamedDigests inputs;  // as they were where the plan was made, to name those that differ
};

struct UnitReport {
  std::string label, key;
  bool compiled = false;       // else the store had it
  std::string refused;         // why a library made no plan of it; that is an answer, and is kept
  uint64_t bytes = 0;          // of code
  double seconds = 0;          // of all
  double compile_seconds = 0;  // of these, in the compiler
  std::string ToJson() const;
};

// Of `options` it heeds paths, targets, providers, problems, python, cache_dir and shared_cache. A
// compiler's words go to the reporter as well. When it returns, the object is in the store, and in
// the shared one unless that is only read; after an error nothing half is in either.
//   kFailedPrecondition  key or inputs are others here than where the plan was made; or a store
//                        cannot be written
//   kNotFound            no such unit
//   kInvalidArgument     its source is wrong
Result<UnitReport> CompileOneUnit(const BuildOptions& options, const WantedUnit& wanted,
                                  Reporter& reporter);

// A unit of a plan that BuildPlan wrote, and the options that lead to it. Nothing that the file
// names is run: manifests are read as any others, and what it says of a unit is compared. `number`
// counts from 0.
struct PlannedUnit {
  BuildOptions options;
  WantedUnit wanted;
};
// kInvalidArgument: the file is no plan, or its unit not one; kNotFound: no file, no such number;
// kResourceExhausted: it is too large for a plan.
Result<PlannedUnit> ReadPlannedUnit(const std::string& path, uint64_t number);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_COMPILE_UNIT_H_
