// Runtime: loads code objects, makes and shares plans. Plan: a problem ready to launch.
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
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/select.h"

namespace kbundle {

struct DriverApi;
struct CublasLtApi;

// Runs body(begin, end) over all of [0, count), in chunks of at least `grain`, on any threads, and
// returns when all is done. `state` is the executor's own.
struct HostExecutor {
  void (*parallel_for)(void* state, int64_t count, int64_t grain,
                       void (*body)(void* context, int64_t begin, int64_t end),
                       void* context) = nullptr;
  void* state = nullptr;
};

// Addresses, in the op's order; absent tensors are null. Workspace: 256-byte aligned, at least
// plan.workspace_bytes(); null when that is 0. In-out: the result's address equals its operand's.
struct LaunchArgs {
  void* const* operands = nullptr;
  void* const* results = nullptr;
  void* workspace = nullptr;
};

class Plan {
 public:
  virtual ~Plan() = default;

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Of the resolution for 16-byte aligned tensors, then, unless PlanOptions.alignment rules them
  // out, of the others.
  const std::vector<uint32_t>& variants() const { return variants_; }
  Choice choice() const { return choice_; }
  const Problem& problem() const { return problem_; }

  // Enqueues the steps. No allocation, lock, lookup, environment read, formatting (but in an
  // error), waiting or device allocation. The same device work every time for addresses of one
  // alignment class. CUDA: stream is a CUstream, legal as the first call of a capture. Host: stream
  // is a const HostExecutor* (null: the calling thread), and the work is done on return.
  virtual Status Launch(void* stream, const LaunchArgs& args) const = 0;

 protected:
  Problem problem_;
  int64_t workspace_bytes_ = 0;
  std::vector<uint32_t> variants_;
  Choice choice_ = Choice::kManifestOrder;
};

struct PlanOptions {
  int64_t workspace_limit = -1;  // bytes the caller will provide; -1: whatever the choice needs
  // Bytes that every operand's and result's address will be a multiple of: a power of two. A launch
  // that breaks the promise is refused (kInvalidArgument). From 16 on no code for less aligned
  // addresses is loaded; 1 promises nothing but the alignment of the elements.
  int64_t alignment = 1;
};

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
  // For tests: `driver` replaces libcuda, `cublaslt` libcublasLt; both outlive the Runtime and its
  // plans.
  explicit Runtime(const DriverApi* driver = nullptr, const CublasLtApi* cublaslt = nullptr);
  ~Runtime();

  // The current CUDA context's device, or the CPU.
  Result<Device> CurrentDevice(Device::Kind kind);

  // Select, load, evaluate, check. Takes the first variant that loads and whose workspace fits.
  // kInvalidArgument: options.alignment is no power of two.
  // Afterwards nothing is lazy. CUDA needs a current context.
  Result<std::shared_ptr<const Plan>> MakePlan(const std::shared_ptr<const Bundle>& bundle,
                                               const Problem& problem, Device::Kind kind,
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

// Open bundles by name, process-wide: what a compiled program refers to. Several bundles may have
// one name as long as no op is in two of them. The same content under the same name again gives the
// same Bundle; kAlreadyExists names an op that other content has there already. See open_bundles.h.
Result<std::shared_ptr<const Bundle>> OpenShared(const std::string& path,
                                                 const std::string& name = "");

}  // namespace kbundle

#endif  // KBUNDLE_RUNTIME_H_
