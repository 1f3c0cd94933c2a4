// Records are of a kind of GPU: what several have measured may stand in one file only where they
// are alike, which is looked at before anything is compiled.
#include "builder/tune/measurers.h"

#include <fmt/format.h>

#include "builder/device/visible.h"
#include "builder/tune/replay.h"
#include "builder/tune/target.h"

namespace kbundle::builder {

Result<Measurers> Measurers::Start(const MeasurerOptions& asked, int gpus, const Target& target,
                                   const std::vector<const SpaceProblem*>& problems,
                                   const Bundle* outline) {
  Measurers made;
  MeasurerOptions options = asked;
  options.cuda = target.kind != TargetKind::kHost;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if (gpus > 1) options.gpu = OneVisibleGpu(gpu);
    auto child = std::make_unique<ChildMeasurer>(options, problems, outline);
    KB_ASSIGN_OR_RETURN(const nlohmann::json facts, child->Facts());
    if (gpu == 0) made.facts_ = facts;
    if (options.cuda) KB_RETURN_IF_ERROR(made.Look(gpu, gpus, target, facts));
    made.children_.push_back(child.get());
    made.all_.push_back(std::move(child));
  }
  return made;
}

Result<Measurers> Measurers::Replay(const std::string& seed, int gpus,
                                    const std::vector<const SpaceProblem*>& problems) {
  Measurers made;
  for (int gpu = 0; gpu < gpus; ++gpu) made.all_.push_back(MakeReplayMeasurer(seed, problems));
  KB_ASSIGN_OR_RETURN(made.facts_, made.all_[0]->Facts());
  return made;
}

Status Measurers::Look(int gpu, int gpus, const Target& target, const nlohmann::json& facts) {
  KB_RETURN_IF_ERROR(CheckGpu(target, facts, gpu));
  const std::string name = facts.value("name", ""), first = facts_.value("name", "");
  if (name != first) {
    return FailedPrecondition(
        fmt::format("measuring on {} GPUs: GPU {} is an {} and GPU 0 an {}, whose records are not "
                    "the same; tune each kind by itself: --device 0, then --device {}",
                    gpus, gpu, name, first, gpu));
  }
  if (const int others = facts.value("other_processes", 0); others > 0) {
    warnings_.push_back(
        fmt::format("{} other processes use GPU {}: times will be noisy", others, gpu));
  }
  return Status();
}

void Measurers::set_references(References* references) {
  for (ChildMeasurer* child : children_) child->set_references(references);
}

int Measurers::restarts() const {
  int restarts = 0;
  for (const ChildMeasurer* child : children_) restarts += child->restarts();
  return restarts;
}

}  // namespace kbundle::builder
