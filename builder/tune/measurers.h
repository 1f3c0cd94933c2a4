// Those that measure side by side: a child for each GPU, all of one kind, or one for the CPU.
#ifndef KBUNDLE_BUILDER_TUNE_MEASURERS_H_
#define KBUNDLE_BUILDER_TUNE_MEASURERS_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "builder/tune/measurer.h"
#include "kbundle/target.h"

namespace kbundle::builder {

class Measurers {
 public:
  // Starts the children of `gpus` GPUs (with a CPU's target: 1). As ChildMeasurer has it, the
  // problems and the outline outlive them. kFailedPrecondition: a GPU cannot run the target, or
  // GPUs differ.
  static Result<Measurers> Start(const MeasurerOptions& options, int gpus, const Target& target,
                                 const std::vector<const SpaceProblem*>& problems,
                                 const Bundle* outline);
  // Without a device, for tests: as many that answer from the seed.
  static Result<Measurers> Replay(const std::string& seed, int gpus,
                                  const std::vector<const SpaceProblem*>& problems);

  const std::vector<std::unique_ptr<Measurer>>& all() const { return all_; }
  const nlohmann::json& facts() const { return facts_; }  // of the first
  // What will make times noisy.
  const std::vector<std::string>& warnings() const { return warnings_; }
  void set_references(References* references);
  int restarts() const;

 private:
  Status Look(int gpu, int gpus, const Target& target, const nlohmann::json& facts);

  std::vector<std::unique_ptr<Measurer>> all_;
  std::vector<ChildMeasurer*> children_;  // of them, when nothing is replayed
  nlohmann::json facts_;
  std::vector<std::string> warnings_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_MEASURERS_H_
