// Errors of XLA's, made before they are wanted: when memory has run out, XLA cannot make one
// either, and a handler that returns none has succeeded.
#ifndef KBUNDLE_FFI_ERROR_RESERVE_H_
#define KBUNDLE_FFI_ERROR_RESERVE_H_

#include "xla/ffi/api/c_api.h"

namespace kbundle {

// Has a few errors ready for this copy of XLA, as far as memory allows. Called where a program is
// compiled, never where it runs. Thread-safe.
void KeepErrorsReady(const XLA_FFI_Api& api) noexcept;

// "[kbundle:RESOURCE_EXHAUSTED] out of memory ..", of XLA's making now or earlier. Aborts when
// there is none left: more calls failed than are kept ready, and no program was compiled between.
XLA_FFI_Error* OutOfMemoryError(const XLA_FFI_Api& api) noexcept;

}  // namespace kbundle

#endif  // KBUNDLE_FFI_ERROR_RESERVE_H_
