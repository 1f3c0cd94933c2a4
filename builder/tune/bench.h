// One problem on one device: buffers between guard bytes, the check of a candidate's numbers and
// the timing of its launches. Lives in the measuring child.
#ifndef KBUNDLE_BUILDER_TUNE_BENCH_H_
#define KBUNDLE_BUILDER_TUNE_BENCH_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "builder/device/device.h"
#include "builder/tune/accuracy.h"
#include "kbundle/runtime.h"

namespace kbundle::builder {

// A file mapped for reading. Movable.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path, int64_t bytes);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  const char* data() const { return static_cast<const char*>(data_); }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// How a candidate failed; the names are those of records.
struct Failure {
  std::string kind, message;  // "wrong", "outside", "fault", "launch", "load", "refused"
  bool lost = false;          // the device cannot be used any more by this process
};

class TuneBench {
 public:
  // Files of operands (own dtypes) and results (as Judge wants them); "" where absent.
  // `results` say what is wanted of each. rotate: with as many buffers as timing wants.
  static Result<std::unique_ptr<TuneBench>> Load(TuneDevice* device,
                                                 std::shared_ptr<const Bundle> bundle,
                                                 const Problem& problem,
                                                 const std::vector<std::string>& inputs,
                                                 const std::vector<std::string>& expected,
                                                 bool rotate = true);
  ~TuneBench();

  struct Checked {
    double worst = 0;       // of the tolerances
    double ns = 0;          // of one launch, about
    int64_t workspace = 0;  // bytes that its plan asks for
  };
  // Poisons, launches once, compares everything. The variant's id, "@target" included.
  Result<Checked> Check(const std::string& variant, Failure* failure);
  // Nanoseconds a launch, `samples` of them, each over `launches` launches.
  Result<std::vector<double>> Time(const std::string& variant, int launches, int samples,
                                   Failure* failure);
  // The most launches that one sample may hold: in-out operands are restored only between samples.
  int MaxLaunches() const;

 private:
  struct Set {
    void* arena = nullptr;
    std::vector<void*> operands, results;
    LaunchArgs Args(void* workspace) const { return {operands.data(), results.data(), workspace}; }
  };
  struct Candidate {
    std::shared_ptr<const Plan> plan;
    void* arena = nullptr;  // of the workspace
    void* workspace = nullptr;
    std::unique_ptr<TimedLaunches> timed;
    int launches = 0;
  };

  TuneBench(TuneDevice* device, std::shared_ptr<const Bundle> bundle, const Problem& problem)
      : device_(*device), bundle_(std::move(bundle)), problem_(problem) {}
  Status MapFiles(const std::vector<std::string>& inputs, const std::vector<std::string>& expected);
  Status MakeSets(bool rotate);
  Result<Set> MakeSet();
  Status Upload(const Set& set);
  Status Restore(const Set& set);  // its in-out operands
  Status Poison(const Set& set);
  Result<Candidate*> Prepare(const std::string& variant);
  Status LaunchOnce(const Candidate& candidate, const Set& set);
  Status CheckGuards(const Set& set, const Candidate& candidate);
  Status CheckGuard(const void* begin, const std::string& what);
  Status CheckOperands(const Set& set);
  Result<double> CheckResults(const Set& set);
  Failure FailureOf(const Status& status, const char* kind) const;
  std::string Name(bool operand, size_t i) const;
  Allowed AllowedOf(size_t result) const;
  int64_t SetBytes() const;
  int AliasOf(size_t result) const;

  TuneDevice& device_;
  const std::shared_ptr<const Bundle> bundle_;
  const Problem problem_;
  std::vector<MappedFile> inputs_, expected_;
  std::vector<Set> sets_;
  Set pristine_;  // where there are in-out operands: what they hold before a run
  bool in_out_ = false;
  void* flush_ = nullptr;  // twice the cache, where the sets are smaller than that
  std::map<std::string, Candidate> candidates_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_BENCH_H_
