// What the tuner asks for: is this candidate right, and how long does it take?
//
// The answer comes from a measuring child (ChildMeasurer) that owns the device and is started anew
// after a candidate took it down, or, for tests of the tuner itself, from recorded answers
// (ReplayMeasurer). One thread.
#ifndef KBUNDLE_BUILDER_TUNE_MEASURER_H_
#define KBUNDLE_BUILDER_TUNE_MEASURER_H_

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "builder/support/worker_process.h"
#include "builder/tune/references.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// One answer. kind "" is a good one; else how the candidate failed:
//   wrong    numbers outside the tolerance, a NaN, an element nobody wrote
//   outside  wrote where it may not
//   fault    a signal (`signal`), or an error that the device does not recover from
//   abort    ended its process by itself
//   hang     over the time limit
//   memory, output   over these limits
//   load, launch     refused by the loader or the driver
//   refused  by the library, as an algorithm for other problems: no record names it
//   compile  no code
struct Measured {
  std::string kind, message;
  int signal = 0;
  double worst = 0;        // of a check: the largest error as a multiple of the tolerance
  int64_t workspace = 0;   // of a check: bytes
  std::vector<double> ns;  // of a round: per launch
  nlohmann::json state;    // clocks, temperature, ... after the round

  bool ok() const { return kind.empty(); }
};

class Measurer {
 public:
  virtual ~Measurer() = default;
  // Of the device; the same after a new start.
  virtual Result<nlohmann::json> Facts() = 0;
  // Makes the problem's data ready; `bundle` holds its candidates' code. An error is the problem's.
  virtual Status Load(size_t number, const std::string& bundle) = 0;
  virtual Measured Check(const std::string& variant) = 0;
  virtual Measured Time(const std::string& variant, int round, int samples) = 0;
  // The problem's data are not needed any more.
  virtual void Drop(size_t number) = 0;
};

struct MeasurerOptions {
  bool cuda = false;
  std::string gpu;  // for CUDA_VISIBLE_DEVICES of the child; "": it sees what we do
  std::chrono::milliseconds candidate_limit{30'000};
  int64_t memory_bytes = int64_t{1} << 30;  // that a candidate may take beyond the problem's data
  int64_t output_bytes = 1 << 20;
  double sample_ns = 200'000;  // a sample spans at least this, in many launches if need be
  bool rotate =
      true;  // buffers, so that times are of data in memory; only checking needs no others
};

class ChildMeasurer : public Measurer {
 public:
  // Both outlive it; `problems` may be filled until the first Load.
  ChildMeasurer(const MeasurerOptions& options, const std::vector<const SpaceProblem*>& problems,
                const Bundle* outline);
  // Before the first Load; their plan is of the same problems, and they outlive it.
  void set_references(References* references) { references_ = references; }

  Result<nlohmann::json> Facts() override;
  Status Load(size_t number, const std::string& bundle) override;
  Measured Check(const std::string& variant) override;
  Measured Time(const std::string& variant, int round, int samples) override;
  void Drop(size_t number) override;
  int restarts() const { return restarts_; }

 private:
  Status Start();
  Status LoadInChild();
  // A child that somebody else killed is asked again, once.
  Measured Ask(const std::string& variant, const nlohmann::json& request, nlohmann::json* answer);
  Measured AskOnce(const std::string& variant, const nlohmann::json& request,
                   nlohmann::json* answer);
  Measured Lost(const WorkerProcess::Answer& answer);

  const MeasurerOptions options_;
  References* references_ = nullptr;
  const std::vector<const SpaceProblem*>& problems_;
  const Bundle& outline_;
  std::unique_ptr<WorkerProcess> child_;
  nlohmann::json facts_;
  int restarts_ = -1;

  size_t number_ = 0;
  std::string bundle_;
  ReferenceFiles files_;
  bool loaded_ = false;  // in this child
  int launches_ = 0, max_launches_ = 1;
  std::map<std::string, int64_t> grown_;  // bytes that each candidate left behind in this child
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_MEASURER_H_
