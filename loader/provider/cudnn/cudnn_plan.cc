// An execution plan is JSON text: the live driver's version is put into it, cuDNN finalizes it,
// its kernels are loaded by a capture that is thrown away. Afterwards a launch gives it addresses
// and runs it.
#include "loader/provider/cudnn/cudnn_plan.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "loader/cuda/load_by_capture.h"
#include "loader/cuda/outside_captures.h"

namespace kbundle {
namespace {

Status CheckVersion(const CudnnApi& cudnn, const ExecutionPlanBlob& blob) {
  const uint64_t live = cudnn.GetVersion();
  if (live == blob.cudnn_version) return Status();
  const std::string made = CudnnVersionText(blob.cudnn_version);
  return FailedPrecondition(
      fmt::format("its execution plan was made by cuDNN {0}, this process has {1} ({2}): install "
                  "nvidia-cudnn-cu13=={0}.*, or build the bundle with {1} too",
                  made, CudnnVersionText(live), cudnn.path));
}

// All that cuDNN compares but the driver's version: see NameLiveDriver.
Status CheckDevice(const DriverApi& driver, const CudaDevice& device,
                   const ExecutionPlanBlob& blob) {
  for (const ExecutionPlanBlob::DeviceField& field : blob.device) {
    int live = 0;
    KB_RETURN_IF_ERROR(
        driver.Check(driver.DeviceGetAttribute(
                         &live, static_cast<CUdevice_attribute>(field.attribute), device.ordinal),
                     fmt::format("asking {} for {}", device.device.ToString(), field.name)));
    if (live == field.value) continue;
    return FailedPrecondition(fmt::format(
        "its execution plan was made for a device with {} {}, {} has {}: plan for that device too "
        "(kbundle profile writes its profile)",
        field.name, field.value, device.device.ToString(), live));
  }
  return Status();
}

// cuDNN refuses a plan that was made under another driver's version, which is no part of what the
// plan does. Its other way, finalizing against a profile instead of the live device, takes any
// driver and gives the same bits, but launches persistent kernels on 18 of an H200's 132 SMs.
Status NameLiveDriver(const DriverApi& driver, std::string& plan) {
  constexpr std::string_view kField = "\"driverVer\":";
  int version = 0;
  KB_RETURN_IF_ERROR(driver.Check(driver.DriverGetVersion(&version), "asking for the driver"));
  const size_t field = plan.find(kField);
  if (field == std::string::npos) {
    return DataLoss("an execution plan does not say for which driver it was made");
  }
  const size_t begin = field + kField.size(), end = plan.find_first_not_of("0123456789", begin);
  plan.replace(begin, end - begin, std::to_string(version));
  return Status();
}

// A backend descriptor for the time of a scope, or until it is released.
class Descriptor {
 public:
  Descriptor(const CudnnApi& cudnn, int kind) : cudnn_(cudnn) {
    status_ = cudnn.CreateDescriptor(kind, &descriptor_);
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) cudnn_.DestroyDescriptor(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // Calls after a failed one do nothing, so that only the last status need be looked at.
  void Set(int attribute, int type, int64_t count, const void* values) {
    if (status_ == 0) status_ = cudnn_.SetAttribute(descriptor_, attribute, type, count, values);
  }
  int Finalize() {
    if (status_ == 0) status_ = cudnn_.Finalize(descriptor_);
    return status_;
  }
  CudnnDescriptor get() const { return descriptor_; }
  CudnnDescriptor release() { return std::exchange(descriptor_, nullptr); }

 private:
  const CudnnApi& cudnn_;
  CudnnDescriptor descriptor_ = nullptr;
  int status_ = 0;
};

}  // namespace

// ---- Making it ---------------------------------------------------------------------------------

Result<std::shared_ptr<CudnnPlan>> CudnnPlan::Load(const DriverApi& driver, CudnnHandles& handles,
                                                   const CudaDevice& device,
                                                   ExecutionPlanBlob blob) {
  KB_RETURN_IF_ERROR(CheckVersion(handles.cudnn(), blob));
  KB_RETURN_IF_ERROR(CheckDevice(driver, device, blob));
  KB_RETURN_IF_ERROR(NameLiveDriver(driver, blob.plan));
  std::shared_ptr<CudnnPlan> plan(new CudnnPlan(driver, handles, std::move(blob)));
  const CudnnHandles::Turn turn(handles);
  KB_ASSIGN_OR_RETURN(const Taken<CudnnHandles::Handle> handle, handles.Take());
  KB_RETURN_IF_ERROR(plan->MakeFinalized(handle->handle).status());
  return plan;
}

CudnnPlan::~CudnnPlan() {
  finalized_.ForEach([this](const Finalized& finalized) { Destroy(finalized); });
}

void CudnnPlan::Destroy(const Finalized& finalized) const {
  if (finalized.pack != nullptr) cudnn_.DestroyDescriptor(finalized.pack);
  cudnn_.DestroyDescriptor(finalized.plan);
}

Result<Taken<CudnnPlan::Finalized>> CudnnPlan::MakeFinalized(CudnnHandle handle) const {
  Finalized made;
  KB_ASSIGN_OR_RETURN(made.plan, Finalize(handle));
  if (auto* item = finalized_.Add(made)) return Taken<Finalized>(finalized_, item);
  Destroy(made);
  return ResourceExhausted(
      fmt::format("over {} threads launch one execution plan at the same time: let fewer do so",
                  FreeList<Finalized>::kPlaces));
}

Result<CudnnDescriptor> CudnnPlan::Finalize(CudnnHandle handle) const {
  Descriptor plan(cudnn_, kCudnnExecutionPlanDescriptor);
  // The handle first: cuDNN 9.19 crashes over a plan that has none.
  plan.Set(kCudnnPlanHandle, kCudnnHandle, 1, &handle);
  plan.Set(kCudnnPlanJson, kCudnnChar, static_cast<int64_t>(blob_.plan.size()), blob_.plan.data());
  KB_RETURN_IF_ERROR(cudnn_.Check(plan.Finalize(), "loading an execution plan"));
  return plan.release();
}

Status CudnnPlan::Touch(const int64_t* uids, void* const* addresses, int64_t count,
                        void* workspace) const {
  if (touched_.load(std::memory_order_acquire)) return Status();
  const CudnnHandles::Turn turn(handles_);
  KB_ASSIGN_OR_RETURN(const Taken<CudnnHandles::Handle> handle, handles_.Take());
  if (auto* item = finalized_.Take()) {
    const Taken<Finalized> finalized(finalized_, item);
    KB_RETURN_IF_ERROR(LoadKernels(*handle, *finalized, uids, addresses, count, workspace));
  }  // else others launch it already
  touched_.store(true, std::memory_order_release);
  return Status();
}

Status CudnnPlan::LoadKernels(CudnnHandles::Handle& handle, Finalized& finalized,
                              const int64_t* uids, void* const* addresses, int64_t count,
                              void* workspace) const {
  const Status status = LoadByCapture(driver_, [&](CUstream stream) {
    return EnqueueBy(handle, finalized, stream, uids, addresses, count, workspace);
  });
  handle.has_stream = false;  // it is gone, and a later one may have its address
  return status;
}

// ---- Running it --------------------------------------------------------------------------------

Status CudnnPlan::Enqueue(CUstream stream, const int64_t* uids, void* const* addresses,
                          int64_t count, void* workspace) const {
  KB_ASSIGN_OR_RETURN(const Taken<CudnnHandles::Handle> handle, handles_.Take());
  if (auto* item = finalized_.Take()) [[likely]] {
    const Taken<Finalized> finalized(finalized_, item);
    return EnqueueBy(*handle, *finalized, stream, uids, addresses, count, workspace);
  }
  // Another thread has it. The stream may be capturing, which loading code would spoil.
  std::optional<OutsideCaptures> outside(std::in_place, driver_);
  KB_RETURN_IF_ERROR(outside->status());
  KB_ASSIGN_OR_RETURN(const Taken<Finalized> finalized, MakeFinalized(handle->handle));
  KB_RETURN_IF_ERROR(LoadKernels(*handle, *finalized, uids, addresses, count, workspace));
  outside.reset();
  return EnqueueBy(*handle, *finalized, stream, uids, addresses, count, workspace);
}

Status CudnnPlan::EnqueueBy(CudnnHandles::Handle& handle, Finalized& finalized, CUstream stream,
                            const int64_t* uids, void* const* addresses, int64_t count,
                            void* workspace) const {
  if (!handle.has_stream || handle.stream != stream) {
    KB_RETURN_IF_ERROR(
        cudnn_.Check(cudnn_.SetStream(handle.handle, stream), "giving cuDNN the stream"));
    handle.stream = stream;
    handle.has_stream = true;
  }
  const bool same =
      finalized.pack != nullptr && finalized.workspace == workspace &&
      std::memcmp(finalized.addresses, addresses, static_cast<size_t>(count) * sizeof(void*)) == 0;
  if (!same) KB_RETURN_IF_ERROR(Pack(finalized, uids, addresses, count, workspace));
  const int status = cudnn_.Execute(handle.handle, finalized.plan, finalized.pack);
  if (status == 0) [[likely]]
    return Status();
  return cudnn_.Check(status, "running an execution plan");
}

// A pack cannot be changed once it is finalized.
Status CudnnPlan::Pack(Finalized& finalized, const int64_t* uids, void* const* addresses,
                       int64_t count, void* workspace) const {
  if (finalized.pack != nullptr) {
    cudnn_.DestroyDescriptor(std::exchange(finalized.pack, nullptr));
  }
  Descriptor pack(cudnn_, kCudnnVariantPackDescriptor);
  pack.Set(kCudnnPackUids, kCudnnInt64, count, uids);
  pack.Set(kCudnnPackPointers, kCudnnVoidPtr, count, addresses);
  pack.Set(kCudnnPackWorkspace, kCudnnVoidPtr, 1, &workspace);
  const int status = pack.Finalize();
  if (status != 0) [[unlikely]]
    return cudnn_.Check(status, "giving an execution plan its addresses");
  finalized.pack = pack.release();
  finalized.workspace = workspace;
  std::memcpy(finalized.addresses, addresses, static_cast<size_t>(count) * sizeof(void*));
  return Status();
}

// ---- Cache and step ----------------------------------------------------------------------------

Result<std::shared_ptr<const CudnnPlan>> CudnnPlans::Load(const CudaPlace& place, uint32_t blob) {
  const auto load = [&]() -> Result<std::shared_ptr<Loaded>> {
    KB_ASSIGN_OR_RETURN(const CudnnApi* cudnn, CudnnApi::Get());
    const auto make_handles = [&]() -> Result<std::shared_ptr<CudnnHandles>> {
      return std::make_shared<CudnnHandles>(place.driver, *cudnn);
    };
    auto loaded = std::make_shared<Loaded>();
    KB_ASSIGN_OR_RETURN(loaded->handles, handles_.GetOrMake(place.context, make_handles));
    KB_ASSIGN_OR_RETURN(const Buffer bytes, place.bundle.ReadBlob(blob, &place.bases));
    KB_ASSIGN_OR_RETURN(ExecutionPlanBlob parsed, ParseExecutionPlan(bytes));
    KB_ASSIGN_OR_RETURN(loaded->plan, CudnnPlan::Load(place.driver, *loaded->handles, place.device,
                                                      std::move(parsed)));
    return loaded;
  };
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<Loaded> loaded,
                      plans_.GetOrMake({place.context, place.bundle.BlobDigest(blob)}, load));
  return std::shared_ptr<const CudnnPlan>(loaded, loaded->plan.get());
}

Result<std::unique_ptr<const CudaStep>> CudnnPlans::Make(const CudaPlace& place,
                                                         const ResolvedStep& step) {
  KB_ASSIGN_OR_RETURN(std::shared_ptr<const CudnnPlan> plan, Load(place, step.blob));
  KB_ASSIGN_OR_RETURN(CudnnLaunch launch, CudnnLaunch::Make(std::move(plan), step));
  return std::unique_ptr<const CudaStep>(std::make_unique<CudnnLaunch>(std::move(launch)));
}

Result<CudnnLaunch> CudnnLaunch::Make(std::shared_ptr<const CudnnPlan> plan,
                                      const ResolvedStep& step) {
  // The row of the index and the blob are checked apart, and only here do they meet.
  if (plan->blob().workspace_bytes > static_cast<uint64_t>(step.bytes)) {
    return DataLoss(
        fmt::format("its execution plan takes {} bytes of workspace, the bundle's index has {}: "
                    "rebuild the bundle",
                    plan->blob().workspace_bytes, step.bytes));
  }
  CudnnLaunch launch;
  launch.plan_ = plan;
  launch.workspace_ = step.workspace;
  launch.workspace_.index += static_cast<int64_t>(plan->blob().own_offset);
  launch.constants_ = std::make_unique<std::byte[]>(step.constants.size());
  if (!step.constants.empty()) {
    std::memcpy(launch.constants_.get(), step.constants.data(), step.constants.size());
  }
  for (int64_t uid : plan->blob().uids) {
    KB_ASSIGN_OR_RETURN(const Source source, launch.Find(uid, step));
    launch.uids_.push_back(uid);
    launch.sources_.push_back(source);
  }
  KB_RETURN_IF_ERROR(launch.Touch());
  return launch;
}

// cuDNN's own scalars and tensors have uids that the request left free, also those of arguments
// that this problem lacks.
Result<CudnnLaunch::Source> CudnnLaunch::Find(int64_t uid, const ResolvedStep& step) const {
  for (const ExecutionPlanBlob::Part& part : plan_->blob().parts) {
    if (part.uid == uid) return SourceOf(step.workspace, static_cast<int64_t>(part.offset));
  }
  for (const ExecutionPlanBlob::Scalar& fixed : plan_->blob().scalars) {
    if (fixed.uid == uid) return Source{.offset = reinterpret_cast<int64_t>(&fixed.bits)};
  }
  if (uid <= static_cast<int64_t>(step.args.size())) {
    const ResolvedArg& arg = step.args[static_cast<size_t>(uid) - 1];
    if (arg.kind == ResolvedArg::Kind::kConstant) {
      return Source{.offset = reinterpret_cast<int64_t>(constants_.get() + arg.index)};
    }
    if (arg.pointer.from != Pointer::From::kNull) return SourceOf(arg.pointer, 0);
  }
  return DataLoss(
      fmt::format("its execution plan wants a tensor {} that this problem lacks: "
                  "rebuild the bundle",
                  uid));
}

CudnnLaunch::Source CudnnLaunch::SourceOf(const Pointer& pointer, int64_t behind) {
  switch (pointer.from) {
    case Pointer::From::kOperand:
      return {Source::kOperands, static_cast<uint32_t>(pointer.index), pointer.offset + behind};
    case Pointer::From::kResult:
      return {Source::kResults, static_cast<uint32_t>(pointer.index), pointer.offset + behind};
    case Pointer::From::kWorkspace:
      return {Source::kWorkspace, 0, pointer.index + behind};
    case Pointer::From::kNull:
      break;
  }
  return {};
}

Status CudnnLaunch::Touch() const {
  const MadeUpAddresses made_up;
  void* addresses[kMaxPlanUids];
  Fill(made_up.args(), addresses);
  return plan_->Touch(uids_.data(), addresses, static_cast<int64_t>(uids_.size()),
                      workspace_.At(made_up.args()));
}

void CudnnLaunch::Fill(const LaunchArgs& args, void** addresses) const {
  void* const none = nullptr;
  void* const* const tables[] = {args.operands, args.results, &args.workspace, &none};
  for (const Source& source : sources_) {
    const auto base = reinterpret_cast<uintptr_t>(tables[source.table][source.index]);
    *addresses++ = reinterpret_cast<void*>(base + static_cast<uintptr_t>(source.offset));
  }
}

Status CudnnLaunch::Enqueue(CUstream stream, const LaunchArgs& args) const {
  void* addresses[kMaxPlanUids];
  Fill(args, addresses);
  return plan_->Enqueue(stream, uids_.data(), addresses, static_cast<int64_t>(uids_.size()),
                        workspace_.At(args));
}

}  // namespace kbundle
