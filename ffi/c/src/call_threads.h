// Threads made for one kb_plan_launch_threads. A launch that must be cheap runs with one thread, or
// brings a pool of its own as a kb_host_executor.
#ifndef KBUNDLE_FFI_CALL_THREADS_H_
#define KBUNDLE_FFI_CALL_THREADS_H_

#include "kbundle/runtime.h"

namespace kbundle {

struct CallThreads {
  int threads = 1;

  // Borrows this object.
  HostExecutor executor();
};

}  // namespace kbundle

#endif  // KBUNDLE_FFI_CALL_THREADS_H_
