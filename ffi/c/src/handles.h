// What the opaque handles of kbundle_c.h hold, and the guard every function of it runs under.
//
// A kb_error is owned by the caller. kb_bundle and kb_plan hold references. No exception
// leaves Guarded: whatever was thrown becomes a kb_error, and memory that ran out becomes one that
// is never allocated.
#ifndef KBUNDLE_FFI_HANDLES_H_
#define KBUNDLE_FFI_HANDLES_H_

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "kbundle/allocator.h"
#include "kbundle/kbundle_c.h"
#include "kbundle/parts.h"
#include "kbundle/runtime.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

struct kb_error {
  int code = 0;
  std::unique_ptr<const std::string> text;  // null for the error that is never allocated
  const char* message = nullptr;            // into text, or a literal
};

struct kb_bundle {
  std::string name;  // that it was opened under
  std::shared_ptr<const kbundle::Parts> parts;
};

struct kb_plan {
  kbundle::Device::Kind kind;                     // says which launch is legal
  std::shared_ptr<const kbundle::Bundle> bundle;  // the part that serves; names its variants
  std::shared_ptr<const kbundle::Plan> plan;
};

namespace kbundle {

// The error of a process without memory; kb_error_free leaves it alone.
kb_error* OutOfMemoryError();

// Null for OK.
kb_error* ToError(const Status& status);

// A copy that kb_string_free frees; null when memory has run out.
char* CopyText(const std::string& text);

// Copies text to *out, which is set only on success.
Status ReturnText(const std::string& text, char** out);

// kInvalidArgument naming the parameter when pointer is null.
Status RequirePointer(const void* pointer, const char* name);

template <typename Body>
kb_error* Guarded(Body&& body) noexcept {
  try {
    return ToError(std::forward<Body>(body)());
  } catch (const AllocatorRefused& refused) {
    try {
      return ToError(ResourceExhausted(refused.what()));
    } catch (...) {
      return OutOfMemoryError();
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemoryError();
  } catch (const std::exception& exception) {
    try {
      return ToError(Internal(std::string("unexpected exception: ") + exception.what()));
    } catch (...) {
      return OutOfMemoryError();
    }
  } catch (...) {
    return OutOfMemoryError();
  }
}

}  // namespace kbundle

#endif  // KBUNDLE_FFI_HANDLES_H_
