// The raw C structs of an XLA FFI call: errors out, dtypes and attributes in. Everything is
// checked; nothing here allocates when all is well.
#ifndef KBUNDLE_FFI_FRAME_H_
#define KBUNDLE_FFI_FRAME_H_

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "error_reserve.h"
#include "kbundle/dtype.h"
#include "kbundle/problem.h"
#include "kbundle/status.h"
#include "xla/ffi/api/c_api.h"

namespace kbundle {

// An error that XLA owns: canonical code, message "[kbundle:NOT_FOUND] ...", the tag being what a
// caller parses (Python cannot tell XLA's errors apart by type). Null for OK.
XLA_FFI_Error* ToXlaError(const XLA_FFI_Api& api, const Status& status);

// Takes and frees an error of XLA's own; null gives OK. `doing` says what failed.
Status FromXlaError(const XLA_FFI_Api& api, XLA_FFI_Error* error, const char* doing);

// kInvalid for a type that no op can have.
DType FromXlaDType(XLA_FFI_DataType type);

inline const XLA_FFI_Buffer& Argument(const XLA_FFI_CallFrame& frame, int64_t index) {
  return *static_cast<const XLA_FFI_Buffer*>(frame.args.args[index]);
}
inline const XLA_FFI_Buffer& ResultBuffer(const XLA_FFI_CallFrame& frame, int64_t index) {
  return *static_cast<const XLA_FFI_Buffer*>(frame.rets.rets[index]);
}

// Dense and present. kInvalidArgument says which dtype an op cannot have.
Result<TensorSpec> ToTensorSpec(const XLA_FFI_Buffer& buffer);

std::string_view AttributeName(const XLA_FFI_Attrs& attrs, int64_t index);
// A bool, integer, floating number, string, or an array of int64 or double.
Result<AttributeValue> ToAttributeValue(const XLA_FFI_Attrs& attrs, int64_t index);

// Runs a handler's body; whatever is thrown becomes an error too, and memory that has run out one
// that needs none.
template <typename Body>
XLA_FFI_Error* GuardedHandler(const XLA_FFI_Api& api, Body&& body) noexcept {
  try {
    try {
      return ToXlaError(api, std::forward<Body>(body)());
    } catch (const std::bad_alloc&) {
      return OutOfMemoryError(api);
    } catch (const std::exception& exception) {
      return ToXlaError(api, Internal(std::string("unexpected exception: ") + exception.what()));
    } catch (...) {
      return ToXlaError(api, Internal("unexpected exception of unknown type"));
    }
  } catch (...) {  // out of memory while saying so
    return OutOfMemoryError(api);
  }
}

}  // namespace kbundle

#endif  // KBUNDLE_FFI_FRAME_H_
