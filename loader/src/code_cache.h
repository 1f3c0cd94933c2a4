// Code objects and kernels loaded into CUDA contexts, by (context, bundle content, blob).
//
// Nothing is loaded under a lock. A finished object is published whole; of two threads that race,
// the loser drops its copy. Published objects stay loaded for the life of the process, because
// unloading may wait for running work and their number is bounded by the bundle.
//
// CU_LIBRARY_BINARY_IS_PRESERVED is not used: the driver copies the image, so the verified bytes
// are freed at once, instead of living as long as the driver may look at them.
#ifndef KBUNDLE_LOADER_CODE_CACHE_H_
#define KBUNDLE_LOADER_CODE_CACHE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "cuda_device.h"
#include "kbundle/bundle.h"
#include "kbundle/driver_api.h"

namespace kbundle {

// A kernel ready to launch in one context. Lives as long as its cache; the function for ever.
class CudaKernel {
 public:
  CudaKernel(const DriverApi& driver, CUfunction function, std::string symbol,
             std::vector<size_t> parameter_sizes, int64_t max_threads, int64_t static_shared);

  CUfunction function() const { return function_; }
  // Checks the step against the kernel and the device, and sets what its launches need: dynamic
  // shared memory (never lowered, plans share the kernel), clusters of more than 8 blocks.
  Status Prepare(const ResolvedStep& step, const CudaDevice& device);

 private:
  Status CheckParameters(const ResolvedStep& step) const;
  Status AllowShared(int64_t bytes, const CudaDevice& device);
  Status AllowLargeClusters();

  const DriverApi& driver_;
  const CUfunction function_;
  const std::string symbol_;
  const std::vector<size_t> parameter_sizes_;
  const int64_t max_threads_;
  const int64_t static_shared_;
  std::mutex mutex_;
  int64_t allowed_shared_ = 0;  // guarded by mutex_
  bool large_clusters_ = false;
};

// Thread-safe.
class CodeCache {
 public:
  // The kernel, resident in the current context, whose id is `context`. kDataLoss: the blob is
  // damaged, or lacks the kernel; nothing damaged ever reaches the driver.
  Result<CudaKernel*> Load(const DriverApi& driver, uint64_t context, const Bundle& bundle,
                           uint32_t blob, const std::string& symbol, Bundle::BaseCache* bases);
  uint64_t objects_loaded() const { return objects_loaded_.load(std::memory_order_relaxed); }

 private:
  using ObjectKey = std::tuple<uint64_t, std::string, uint32_t>;  // context, content id, blob
  using KernelKey = std::tuple<CUlibrary, std::string>;

  Result<CUlibrary> LoadObject(const DriverApi& driver, uint64_t context, const Bundle& bundle,
                               uint32_t blob, Bundle::BaseCache* bases);

  std::atomic<uint64_t> objects_loaded_{0};
  std::mutex mutex_;  // of the maps only
  std::map<ObjectKey, CUlibrary> objects_;
  std::map<KernelKey, std::unique_ptr<CudaKernel>> kernels_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CODE_CACHE_H_
