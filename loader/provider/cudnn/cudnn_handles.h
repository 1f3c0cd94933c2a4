// Handles of cuDNN for one CUDA context. One takes over a millisecond to make, and cuDNN makes them
// one after another, so all execution plans of a context share them.
#ifndef KBUNDLE_LOADER_CUDNN_HANDLES_H_
#define KBUNDLE_LOADER_CUDNN_HANDLES_H_

#include <semaphore>

#include "kbundle/driver_api.h"
#include "kbundle/status.h"
#include "loader/provider/cudnn/cudnn_api.h"
#include "loader/support/free_list.h"

namespace kbundle {

// cuDNN does not promise that a handle may be in two threads at once. No lock: a thread that finds
// all of them taken makes one more.
class CudnnHandles {
 public:
  struct Handle {
    CudnnHandle handle = nullptr;
    CUstream stream = nullptr;  // that it has
    bool has_stream = false;
  };

  // Both borrowed. Handles are for the context that is current in the thread that takes one.
  CudnnHandles(const DriverApi& driver, const CudnnApi& cudnn) : driver_(driver), cudnn_(cudnn) {}
  ~CudnnHandles() {
    list_.ForEach([this](const Handle& handle) { cudnn_.Destroy(handle.handle); });
  }
  CudnnHandles(const CudnnHandles&) = delete;
  CudnnHandles& operator=(const CudnnHandles&) = delete;

  // A thread's turn to load a plan, which it waits for; a launch never does. Each thread would make
  // a handle of its own, one after another, and the driver loads kernels one after another too: 16
  // plans take 8 threads 39 ms with a handle each, 28 ms with two, 46 ms with one (H200).
  class Turn {
   public:
    explicit Turn(CudnnHandles& handles) : loading_(handles.loading_) { loading_.acquire(); }
    ~Turn() { loading_.release(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::counting_semaphore<>& loading_;
  };

  const CudnnApi& cudnn() const { return cudnn_; }
  // kResourceExhausted: FreeList::kPlaces are taken.
  Result<Taken<Handle>> Take();

 private:
  static constexpr int kLoadingThreads = 2;

  const DriverApi& driver_;
  const CudnnApi& cudnn_;
  FreeList<Handle> list_;
  std::counting_semaphore<> loading_{kLoadingThreads};
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CUDNN_HANDLES_H_
