// Threads made for one kb_plan_launch. A launch that must be cheap runs with one thread, or brings
// a pool of its own through the XLA handlers.
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
