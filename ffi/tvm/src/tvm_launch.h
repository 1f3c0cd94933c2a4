// What a launch needs that its plan does not bring: the device's context, a stream, workspace.
#ifndef KBUNDLE_FFI_TVM_LAUNCH_H_
#define KBUNDLE_FFI_TVM_LAUNCH_H_

#include <cstdint>

#include "handles.h"
#include "kbundle/driver_api.h"
#include "kbundle/status.h"

namespace kbundle {

// A device's primary context, which is every framework's, as this thread's while it lives.
class CurrentContext {
 public:
  CurrentContext() = default;
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext();
  Status Enter(int32_t device);

 private:
  const DriverApi* driver_ = nullptr;
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

// Of a plan for CUDA, whose context is current: workspace is the stream's, given back in its order.
Status LaunchOnStream(const kb_plan& plan, CUstream stream, void* const* operands,
                      void* const* results);
Status LaunchOnThreads(const kb_plan& plan, int threads, void* const* operands,
                       void* const* results);

}  // namespace kbundle

#endif  // KBUNDLE_FFI_TVM_LAUNCH_H_
