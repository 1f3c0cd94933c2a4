// Steps of a GPU plan that are neither kernel, memset nor copy: those of a provider's own.
#ifndef KBUNDLE_LOADER_CUDA_STEPS_H_
#define KBUNDLE_LOADER_CUDA_STEPS_H_

#include <cstdint>
#include <memory>

#include "kbundle/bundle.h"
#include "kbundle/driver_api.h"
#include "kbundle/launch.h"
#include "kbundle/status.h"
#include "loader/cuda/cuda_device.h"
#include "loader/resolve/resolve.h"

namespace kbundle {

// Ready in one context: nothing is left for the first launch. Immutable; any number of threads.
class CudaStep {
 public:
  virtual ~CudaStep() = default;
  // As Plan::Launch: no allocation, no lock that waits, legal in a capture.
  virtual Status Enqueue(CUstream stream, const LaunchArgs& args) const = 0;
};

// Where a step is made: the calling thread's current context, outside all captures of its own.
struct CudaPlace {
  const DriverApi& driver;  // outlives every step
  const CudaDevice& device;
  uint64_t context;  // id
  const Bundle& bundle;
  Bundle::BaseCache& bases;
};

// What a Runtime keeps of one provider: its library's handles, what is loaded. Thread-safe.
class CudaSteps {
 public:
  virtual ~CudaSteps() = default;
  // Loads and checks. kDataLoss: the bundle is damaged; other errors: another variant may do.
  virtual Result<std::unique_ptr<const CudaStep>> Make(const CudaPlace& place,
                                                       const ResolvedStep& step) = 0;
  // Lets go of what no plan uses; the caller says that none of it is still running.
  virtual void DropUnused() {}
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CUDA_STEPS_H_
