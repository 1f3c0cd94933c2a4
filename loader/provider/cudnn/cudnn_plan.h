// cuDNN's execution plans, loaded from a bundle and ready to run in one CUDA context.
//
//   made at prepare, once a blob and context          at a launch
//   ---------------------------------------          -----------
//   the blob, verified; the live cuDNN and device
//   compared with those that it was made for
//   a handle, of the context; the plan,          --->  a free handle and a free finalized plan are
//   finalized                                          taken, without waiting
//   its kernels loaded by a capture thrown away        (one that is made now has its kernels loaded
//                                                      likewise, outside of all captures)
//                                                      a variant pack of this launch's addresses,
//                                                      which is kept while they stay the same
//                                                      cudnnBackendExecute
//
// cuDNN does not promise that a handle or an execution plan may be in two threads at once, so they
// never are: a launch that finds all of them taken makes one more, which then stays.
#ifndef KBUNDLE_LOADER_CUDNN_PLAN_H_
#define KBUNDLE_LOADER_CUDNN_PLAN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/driver_api.h"
#include "kbundle/launch.h"
#include "kbundle/provider/cudnn.h"
#include "loader/cuda/cuda_device.h"
#include "loader/cuda/cuda_steps.h"
#include "loader/provider/cudnn/cudnn_api.h"
#include "loader/provider/cudnn/cudnn_handles.h"
#include "loader/resolve/resolve.h"
#include "loader/support/free_list.h"
#include "loader/support/once_map.h"

namespace kbundle {

// Thread-safe.
class CudnnPlan {
 public:
  // For the current context, whose handles are given and borrowed. kFailedPrecondition: another
  // cuDNN than the plan's, or another device than its profile's, with the field that differs;
  // kDataLoss: the blob is damaged.
  static Result<std::shared_ptr<CudnnPlan>> Load(const DriverApi& driver, CudnnHandles& handles,
                                                 const CudaDevice& device, ExecutionPlanBlob blob);
  ~CudnnPlan();

  const ExecutionPlanBlob& blob() const { return blob_; }
  // Loads its kernels into the context, which cuDNN otherwise does when they first run. Arguments
  // as for Enqueue; addresses of device memory may be made up (load_by_capture.h). The calling
  // thread must be outside captures of its own.
  Status Touch(const int64_t* uids, void* const* addresses, int64_t count, void* workspace) const;
  // `count` uids and an address for each: all of blob().uids, in any order; host memory for the
  // scalars, which must live until the call returns.
  Status Enqueue(CUstream stream, const int64_t* uids, void* const* addresses, int64_t count,
                 void* workspace) const;

 private:
  CudnnPlan(const DriverApi& driver, CudnnHandles& handles, ExecutionPlanBlob blob)
      : driver_(driver), cudnn_(handles.cudnn()), handles_(handles), blob_(std::move(blob)) {}

  struct Finalized {
    CudnnDescriptor plan = nullptr;
    CudnnDescriptor pack = nullptr;  // of the last launch, whose addresses follow
    void* workspace = nullptr;
    void* addresses[kMaxPlanUids] = {};
  };

  Result<Taken<Finalized>> MakeFinalized(CudnnHandle handle) const;
  Result<CudnnDescriptor> Finalize(CudnnHandle handle) const;
  Status Pack(Finalized& finalized, const int64_t* uids, void* const* addresses, int64_t count,
              void* workspace) const;
  void Destroy(const Finalized& finalized) const;
  Status LoadKernels(CudnnHandles::Handle& handle, Finalized& finalized, const int64_t* uids,
                     void* const* addresses, int64_t count, void* workspace) const;
  Status EnqueueBy(CudnnHandles::Handle& handle, Finalized& finalized, CUstream stream,
                   const int64_t* uids, void* const* addresses, int64_t count,
                   void* workspace) const;

  const DriverApi& driver_;
  const CudnnApi& cudnn_;
  CudnnHandles& handles_;
  mutable FreeList<Finalized> finalized_;  // what a launch reads, together
  mutable std::atomic<bool> touched_{false};
  const ExecutionPlanBlob blob_;  // its plan names the live driver
};

// Plans by (context, SHA-256 of the blob), each loaded once, as CodeCache does for code.
class CudnnPlans final : public CudaSteps {
 public:
  Result<std::unique_ptr<const CudaStep>> Make(const CudaPlace& place,
                                               const ResolvedStep& step) override;
  // Handles stay.
  void DropUnused() override { plans_.DropUnused(); }

 private:
  Result<std::shared_ptr<const CudnnPlan>> Load(const CudaPlace& place, uint32_t blob);

  struct Loaded {
    std::shared_ptr<CudnnHandles> handles;  // outlive the plan
    std::shared_ptr<CudnnPlan> plan;
  };
  using Key = std::pair<uint64_t, Sha256Digest>;  // context, blob

  OnceMap<uint64_t, CudnnHandles> handles_;  // by context
  OnceMap<Key, Loaded> plans_;
};

// One step: which address or number of a launch each uid gets.
class CudnnLaunch final : public CudaStep {
 public:
  CudnnLaunch() = default;
  // kDataLoss: the plan wants a uid that the step does not give.
  static Result<CudnnLaunch> Make(std::shared_ptr<const CudnnPlan> plan, const ResolvedStep& step);

  Status Enqueue(CUstream stream, const LaunchArgs& args) const override;

 private:
  // Where the address of a uid comes from: element `index` of one of a launch's four tables of
  // addresses, and so many bytes behind it. Looked up without a branch, and 16 bytes for each: a
  // launch finds little in the caches that cuDNN's last one left.
  struct Source {
    enum Table : uint32_t { kOperands, kResults, kWorkspace, kFixed };
    Table table = kFixed;
    uint32_t index = 0;
    int64_t offset = 0;  // bytes; kFixed: the address itself
  };

  // kDataLoss: the step does not give this uid.
  Result<Source> Find(int64_t uid, const ResolvedStep& step) const;
  static Source SourceOf(const Pointer& pointer, int64_t behind);
  Status Touch() const;
  void Fill(const LaunchArgs& args, void** addresses) const;

  std::shared_ptr<const CudnnPlan> plan_;
  std::vector<Source> sources_;  // of uids_
  Pointer workspace_;
  std::vector<int64_t> uids_;
  std::unique_ptr<std::byte[]> constants_;  // scalars, to which sources_ point
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CUDNN_PLAN_H_
