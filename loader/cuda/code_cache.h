// Code objects and kernels loaded into CUDA contexts, by (context, SHA-256 of the code).
//
// Nothing is loaded under a lock. A finished object is published whole; of two threads that race,
// the loser drops its copy. Published objects stay until DropUnused, because unloading may wait for
// running work, and graphs that were captured hold their kernels by address.
//
// CU_LIBRARY_BINARY_IS_PRESERVED is not used: the driver copies the image, so the verified bytes
// are freed at once, instead of living as long as the driver may look at them.
#ifndef KBUNDLE_LOADER_CODE_CACHE_H_
#define KBUNDLE_LOADER_CODE_CACHE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/driver_api.h"
#include "loader/cuda/cuda_device.h"
#include "loader/support/once_map.h"

namespace kbundle {

// A kernel ready to launch in one context, as long as its library is loaded.
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

// A code object in the driver; unloaded with the last user. Thread-safe.
class CudaLibrary {
 public:
  explicit CudaLibrary(const DriverApi& driver) : driver_(driver) {}
  ~CudaLibrary();
  CudaLibrary(const CudaLibrary&) = delete;
  CudaLibrary& operator=(const CudaLibrary&) = delete;

  // Once, before anything else.
  Status Load(std::span<const uint8_t> image, const std::string& what);
  // Lives as long as the library.
  Result<std::shared_ptr<CudaKernel>> Find(const std::string& symbol);

 private:
  const DriverApi& driver_;
  CUlibrary library_ = nullptr;
  OnceMap<std::string, CudaKernel> kernels_;
};

// Thread-safe.
class CodeCache {
 public:
  // The kernel, resident in the current context, whose id is `context`; its library stays loaded
  // while it is held. kDataLoss: the blob is damaged, or lacks the kernel; nothing damaged ever
  // reaches the driver.
  Result<std::shared_ptr<CudaKernel>> Load(const DriverApi& driver, uint64_t context,
                                           const Bundle& bundle, uint32_t blob,
                                           const std::string& symbol, Bundle::BaseCache* bases);
  uint64_t objects_loaded() const { return libraries_.made(); }
  // Unloads the code objects of which no plan is left.
  void DropUnused() { libraries_.DropUnused(); }

 private:
  using Key = std::pair<uint64_t, Sha256Digest>;  // context, code
  OnceMap<Key, CudaLibrary> libraries_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CODE_CACHE_H_
