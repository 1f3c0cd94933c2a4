// The one error that cannot be allocated is there from the start. Texts that the caller owns come
// from malloc, not new, since kb_string_free is C's free.
#include "handles.h"

#include <cstdlib>
#include <cstring>

namespace kbundle {

namespace {

// Made by the compiler: when it is wanted there is no memory to make it in.
constinit kb_error out_of_memory{static_cast<int>(StatusCode::kResourceExhausted),
                                 {},
                                 "out of memory inside kbundle; free memory and try again"};

}  // namespace

kb_error* OutOfMemoryError() { return &out_of_memory; }

kb_error* ToError(const Status& status) {
  if (status.ok()) return nullptr;
  auto error = std::make_unique<kb_error>();
  error->code = static_cast<int>(status.code());
  error->text = std::make_unique<const std::string>(status.message());
  error->message = error->text->c_str();
  return error.release();
}

char* CopyText(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

Status ReturnText(const std::string& text, char** out) {
  char* copy = CopyText(text);
  if (copy == nullptr) return ResourceExhausted("returning text: out of memory");
  *out = copy;
  return Status();
}

Status RequirePointer(const void* pointer, const char* name) {
  if (pointer != nullptr) return Status();
  return InvalidArgument(std::string("calling the C ABI of kbundle: parameter '") + name +
                         "' is NULL; it must point to something");
}

}  // namespace kbundle

extern "C" {

int32_t kb_abi_version(void) { return 1; }
const char* kb_version(void) { return KB_VERSION_TEXT; }

int32_t kb_error_code(const kb_error* error) { return error == nullptr ? 0 : error->code; }

const char* kb_error_message(const kb_error* error) {
  return error == nullptr ? "" : error->message;
}

void kb_error_free(kb_error* error) {
  if (error != kbundle::OutOfMemoryError()) delete error;
}

void kb_string_free(char* text) { std::free(text); }

}  // extern "C"
