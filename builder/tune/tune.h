// `kbundle tune` without its command line: measures candidates, keeps a journal, ends in records.
//
// The parent owns no device. It asks a Measurer, writes each event to the journal before it goes
// on, and derives everything else from the journal: what to measure next, and the records. So a
// kill at any moment loses at most the candidate in flight, and a resumed tune ends where an
// undisturbed one does.
#ifndef KBUNDLE_BUILDER_TUNE_TUNE_H_
#define KBUNDLE_BUILDER_TUNE_TUNE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "builder/tune/measurer.h"
#include "builder/tune/space.h"

namespace kbundle::builder {

struct TuneOptions {
  SpaceOptions space;  // target "host": this CPU's
  ReferenceOptions reference;
  MeasurerOptions measurer;
  int gpus = 1;  // of those that the process sees: measure problems side by side; of one kind
  std::string problems_file;            // JSON lines; "": those of the manifests
  std::string problem;                  // one, as JSON
  std::vector<std::string> only;        // variants; no records are written
  std::chrono::milliseconds budget{0};  // 0: none
  std::string out;                      // folder of records; "": each family's tuning/
  bool resume = false;
  bool revalidate = false;  // instead: stale records, see tune/revalidate.h
  bool held_out = false;    // instead of the listed problems: the held-out ones
  std::string replay;       // for tests: no child, answers made from this seed
};

struct TuneFailure {
  std::string problem, variant, kind, message, command;
};

struct TuneReport {
  std::string device;
  int problems = 0, measured = 0, skipped = 0;
  int revalidated = 0;              // stale records that hold for today's code
  int candidates = 0, changed = 0;  // winners that are not the default
  double geometric_gain = 1, best_gain = 1;
  std::string best_problem;
  double spread = 0;  // median over candidates, relative
  int restarts = 0;
  double seconds = 0;
  double load_seconds = 0;  // of them, waiting for references and copying data
  bool out_of_budget = false;
  std::vector<TuneFailure> failures;
  // Problems that end without an answer, each with why: no candidate is right, or no data.
  std::vector<std::string> unanswered;
  std::vector<std::string> files;  // records written
  std::vector<std::string> warnings;
};

// Called from one thread.
class TuneReporter {
 public:
  virtual ~TuneReporter() = default;
  virtual void Progress(size_t finished, size_t total, const std::string& what) = 0;
  virtual void Warn(const std::string& text) = 0;
  virtual void Note(const std::string& text) = 0;
};

// kUnavailable: no GPU, driver, compiler or Python; says what to do. kCancelled: resume goes on.
Result<TuneReport> Tune(const TuneOptions& options, TuneReporter& reporter,
                        const std::atomic<bool>& cancel);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_TUNE_H_
