// Runtime: loads code objects, makes and shares plans (kbundle/plan.h).
//
// One Runtime a process (Runtime::Global()), others for tests with their own driver table. Plans
// are shared: one per (context, bundle content, problem, options); code objects: one per (context,
// SHA-256 of the code), whatever bundles they come from. Loading happens outside any lock; a
// finished object is published whole, the loser drops its copy.
//
// Plans are plain host memory: the caches hold them weakly, so they die with their last user. Code
// objects are held by their plans and by the Runtime, until it is asked to let go: a plan made
// again should not load again, and only the caller knows when the GPU is done with a kernel. At
// process exit everything is left to the driver. All methods are safe from any thread.
#ifndef KBUNDLE_RUNTIME_H_
#define KBUNDLE_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/parts.h"
#include "kbundle/plan.h"
#include "kbundle/problem.h"
#include "kbundle/target.h"

namespace kbundle {

struct DriverApi;

// Counters since the process began. Of each content, chosen has at most 4096 problems by name; what
// further ones chose is counted by variant, as the problem "(further problems)"; it is of the 64
// contents that came last.
struct RuntimeStats {
  uint64_t plans_made = 0, plans_shared = 0, objects_loaded = 0;
  struct Chosen {
    std::string bundle, content_id;  // the name inside the file, its Bundle::content_id()
    std::string op, problem, variant, choice, device, reason;
    uint64_t count = 0;
  };
  std::vector<Chosen> chosen;
};

class Runtime {
 public:
  static Runtime& Global();
  // For tests: `driver` replaces libcuda; it outlives the Runtime and its plans.
  explicit Runtime(const DriverApi* driver = nullptr);
  ~Runtime();

  // The current CUDA context's device, or the CPU.
  Result<Device> CurrentDevice(Device::Kind kind);

  // Select, load, evaluate, check. Takes the first variant that loads and whose workspace fits.
  // kInvalidArgument: options.alignment is no power of two.
  // Afterwards nothing is lazy. CUDA needs a current context.
  Result<std::shared_ptr<const Plan>> MakePlan(const std::shared_ptr<const Bundle>& bundle,
                                               const Problem& problem, Device::Kind kind,
                                               const PlanOptions& options = {});
  // Of the part that serves (Parts::Serve): the plan, and the part, whose variants it names.
  struct PartPlan {
    std::shared_ptr<const Bundle> bundle;
    std::shared_ptr<const Plan> plan;
  };
  Result<PartPlan> MakePlan(const Parts& parts, const Problem& problem, Device::Kind kind,
                            const PlanOptions& options = {});
  RuntimeStats stats() const;
  // Gives back what no plan alive uses on the host: keys, mapped code. Always safe; called when a
  // bundle is closed.
  void Trim();
  // Trim, and unloads the device code of which no plan is left. The caller says that no such code
  // is still running, and that no CUDA graph captured from such plans will run again.
  void UnloadDeviceCode();

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// Opens libraries (Parts::Open) by name, process-wide: what a compiled program refers to. Several
// may have one name as long as no op is in two of them. The same content under the same name again
// gives the same Parts; kAlreadyExists names an op that other content has there already. See
// open_bundles.h.
Result<std::shared_ptr<const Parts>> OpenShared(const std::string& path,
                                                const std::string& name = "");

}  // namespace kbundle

#endif  // KBUNDLE_RUNTIME_H_
