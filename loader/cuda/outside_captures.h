// A time in which this thread may load code while other threads, or itself, capture.
#ifndef KBUNDLE_LOADER_OUTSIDE_CAPTURES_H_
#define KBUNDLE_LOADER_OUTSIDE_CAPTURES_H_

#include "kbundle/driver_api.h"

namespace kbundle {

// Loading and the rare unload beside another thread's capture: this thread's calls are no part of
// any capture, and the driver is told so, else a capture in GLOBAL mode forbids them.
class OutsideCaptures {
 public:
  explicit OutsideCaptures(const DriverApi& driver)
      : driver_(driver), entered_(driver.ThreadExchangeStreamCaptureMode(&mode_)) {}
  ~OutsideCaptures() {
    if (entered_ == CUDA_SUCCESS) (void)driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;
  Status status() const { return driver_.Check(entered_, "leaving the stream capture mode"); }

 private:
  const DriverApi& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then: the thread's own
  CUresult entered_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_OUTSIDE_CAPTURES_H_
