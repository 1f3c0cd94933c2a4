// Workspace on a GPU comes from the driver's own pool, in stream order: no allocator of a framework
// is known here, and a captured call becomes nodes that allocate and free.
#include "tvm_launch.h"

#include <dlfcn.h>

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "call_threads.h"

namespace kbundle {
namespace {

constexpr int kMostDevices = 64;
constexpr uintptr_t kAlignment = kWorkspaceAlignment;

// Retained once for each device, and kept.
Result<CUcontext> PrimaryContext(const DriverApi& driver, int32_t device) {
  static std::mutex mutex;
  static std::array<CUcontext, kMostDevices> contexts{};
  if (device < 0 || device >= kMostDevices) {
    return InvalidArgument("a tensor is on cuda:" + std::to_string(device) + "; devices 0 to " +
                           std::to_string(kMostDevices - 1) + " are known here");
  }
  const std::lock_guard lock(mutex);
  if (contexts[device] == nullptr) {
    const std::string doing = "making the context of cuda:" + std::to_string(device) + " current";
    CUdevice handle = 0;
    KB_RETURN_IF_ERROR(driver.Check(driver.Init(0), doing));
    KB_RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&handle, device), doing));
    KB_RETURN_IF_ERROR(
        driver.Check(driver.DevicePrimaryCtxRetain(&contexts[device], handle), doing));
  }
  return contexts[device];
}

// The driver's pool of the current device, which libcuda has had since 11.2.
struct Pool {
  CUresult (*Allocate)(CUdeviceptr* out, size_t bytes, CUstream stream) = nullptr;
  CUresult (*Free)(CUdeviceptr address, CUstream stream) = nullptr;
};

Result<Pool> FindPool() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  Pool pool;
  if (driver != nullptr) {
    pool.Allocate = reinterpret_cast<decltype(pool.Allocate)>(dlsym(driver, "cuMemAllocAsync"));
    pool.Free = reinterpret_cast<decltype(pool.Free)>(dlsym(driver, "cuMemFreeAsync"));
  }
  if (pool.Allocate != nullptr && pool.Free != nullptr) return pool;
  return FailedPrecondition("allocating workspace: the driver has no cuMemAllocAsync; update it");
}

}  // namespace

CurrentContext::~CurrentContext() {
  if (changed_) driver_->CtxSetCurrent(before_);
}

Status CurrentContext::Enter(int32_t device) {
  KB_ASSIGN_OR_RETURN(driver_, DriverApi::Get());
  KB_ASSIGN_OR_RETURN(const CUcontext wanted, PrimaryContext(*driver_, device));
  const std::string doing = "making the context of cuda:" + std::to_string(device) + " current";
  KB_RETURN_IF_ERROR(driver_->Check(driver_->CtxGetCurrent(&before_), doing));
  if (before_ == wanted) return Status();
  KB_RETURN_IF_ERROR(driver_->Check(driver_->CtxSetCurrent(wanted), doing));
  changed_ = before_ != nullptr;  // a thread without one may keep it
  return Status();
}

Status LaunchOnStream(const kb_plan& plan, CUstream stream, void* const* operands,
                      void* const* results) {
  const int64_t bytes = plan.plan->workspace_bytes();
  if (bytes == 0) return plan.plan->Launch(stream, LaunchArgs{operands, results, nullptr});
  static const Result<Pool> pool = FindPool();
  if (!pool.ok()) return pool.status();
  KB_ASSIGN_OR_RETURN(const DriverApi* driver, DriverApi::Get());
  CUdeviceptr workspace = 0;
  KB_RETURN_IF_ERROR(
      driver->Check(pool.value().Allocate(&workspace, static_cast<size_t>(bytes), stream),
                    "allocating " + std::to_string(bytes) + " bytes of workspace"));
  Status launched =
      plan.plan->Launch(stream, LaunchArgs{operands, results, reinterpret_cast<void*>(workspace)});
  const CUresult freed = pool.value().Free(workspace, stream);
  KB_RETURN_IF_ERROR(std::move(launched));
  return driver->Check(freed, "giving back workspace");
}

Status LaunchOnThreads(const kb_plan& plan, int threads, void* const* operands,
                       void* const* results) {
  void* workspace = nullptr;
  std::vector<char> held;
  if (const int64_t bytes = plan.plan->workspace_bytes(); bytes > 0) {
    held.resize(static_cast<size_t>(bytes) + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(held.data());
    workspace = reinterpret_cast<void*>((address + kAlignment - 1) & ~(kAlignment - 1));
  }
  CallThreads with{threads};
  const HostExecutor executor = with.executor();
  return plan.plan->Launch(threads > 1 ? const_cast<HostExecutor*>(&executor) : nullptr,
                           LaunchArgs{operands, results, workspace});
}

}  // namespace kbundle
