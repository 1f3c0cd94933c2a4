// XLA:CPU's intra-op thread pool as a HostExecutor. Valid during one execute call.
#ifndef KBUNDLE_FFI_INTRA_OP_POOL_H_
#define KBUNDLE_FFI_INTRA_OP_POOL_H_

#include "kbundle/runtime.h"
#include "xla/ffi/api/c_api.h"

namespace kbundle {

struct IntraOpPool {
  const XLA_FFI_Api* api;
  XLA_FFI_ExecutionContext* context;

  // Borrows this object.
  HostExecutor executor();
  // 1 when there is no pool.
  int64_t ThreadCount() const;
  // False when XLA refuses.
  bool Schedule(XLA_FFI_Task* task, void* data) const;
};

}  // namespace kbundle

#endif  // KBUNDLE_FFI_INTRA_OP_POOL_H_
