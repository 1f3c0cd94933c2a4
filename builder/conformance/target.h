// The variants of one target, launched and compared: the inner part of a conformance run.
#ifndef KBUNDLE_BUILDER_CONFORMANCE_TARGET_H_
#define KBUNDLE_BUILDER_CONFORMANCE_TARGET_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "builder/conformance/conformance.h"
#include "builder/pack/ran_on_file.h"
#include "builder/tune/measurer.h"

namespace kbundle::builder {

// One thread. Run() once; then the rest.
class ConformanceTarget {
 public:
  // target: one, not "host". All outlive it.
  ConformanceTarget(const ConformanceOptions& options, const std::string& target,
                    TuneReporter* reporter, const std::atomic<bool>* cancel);
  ~ConformanceTarget();

  // As RunConformance; kNotFound: no variant is for the target.
  Status Run();

  const std::vector<VariantOutcome>& outcomes() const { return outcomes_; }  // by Work::variants
  const std::string& device() const { return device_; }                      // its name
  const std::vector<std::string>& warnings() const { return warnings_; }
  // What the next build may embed of each family.
  Status WriteRanOn(std::set<std::string>* files) const;

 private:
  Status OpenSpace();
  Status FindDevice();
  Status FindProblems();
  Status StartCompiling();
  Status Launch(size_t number);
  void Check(const SpaceProblem& problem, const SpaceCandidate& candidate);
  Result<std::string> BundleOf(const std::string& op);
  void Fail(uint32_t use, const std::string& kind, const std::string& message,
            const std::string& command);
  void FindUnlaunched();
  std::string CommandFor(const SpaceProblem& problem, const std::string& variant) const;
  std::set<std::string> DeviceNames() const;

  const ConformanceOptions& options_;
  const std::string target_;
  TuneReporter& reporter_;
  const std::atomic<bool>& cancel_;
  bool cuda_ = false;
  std::unique_ptr<TuneSpace> space_;
  std::vector<SpaceProblem> problems_;
  std::vector<const SpaceProblem*> wanted_;
  std::unique_ptr<References> references_;
  std::unique_ptr<ChildMeasurer> measurer_;
  std::map<std::string, std::string> bundles_;  // paths by op; "" where nothing was compiled
  std::map<uint32_t, std::string> refused_;     // by a library, for this reason
  std::vector<VariantOutcome> outcomes_;
  std::vector<std::string> warnings_;
  std::string device_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_CONFORMANCE_TARGET_H_
