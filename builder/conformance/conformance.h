// `kbundle test` without its command line: every variant of op families, launched on this machine
// and compared with the families' float64 references.
//
// It measures no time, and otherwise is the tuner's: legality from an outline, code from children
// that may crash, references from Python children, and launches in a child that a variant may take
// down, on random inputs, on outputs and workspace that are poisoned, between guards.
#ifndef KBUNDLE_BUILDER_CONFORMANCE_CONFORMANCE_H_
#define KBUNDLE_BUILDER_CONFORMANCE_CONFORMANCE_H_

#include <atomic>
#include <string>
#include <vector>

#include "builder/conformance/problems.h"
#include "builder/tune/tune.h"

namespace kbundle::builder {

struct ConformanceOptions {
  SpaceOptions space;  // target "host": each level that this CPU runs
  ReferenceOptions reference;
  MeasurerOptions measurer;
  ConformanceChoice choice;
  bool note_only = false;  // what is right of choice.only is noted too, and nothing about others

  // Only where all of a family was launched does it have facts to write.
  bool whole() const { return choice.problem.empty() && choice.only.empty() && space.op.empty(); }
};

struct VariantOutcome {
  std::string variant;  // its id
  int problems = 0;     // launched on, and right
  double worst = 0;     // of them, the largest error as a multiple of the tolerance
  // "": right; "never": launched on none; "reference": it cannot be compared; or as in Measured.
  std::string kind, message, command;

  bool right() const { return kind.empty(); }
};

struct ConformanceReport {
  std::string device;
  std::vector<VariantOutcome> variants;  // in the manifests' order, target by target
  std::vector<std::string> files;        // ran_on.jsonl, where facts were written
  std::vector<std::string> warnings;
  uint64_t seed = 0;  // of the inputs
  double seconds = 0;

  int failed() const;
};

// kUnavailable: no GPU, driver, compiler or Python; says what to do. kInvalidArgument: no variant
// is for the target, or what the options name does not exist. kCancelled: nothing was written.
Result<ConformanceReport> RunConformance(const ConformanceOptions& options, TuneReporter& reporter,
                                         const std::atomic<bool>& cancel);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CONFORMANCE_CONFORMANCE_H_
