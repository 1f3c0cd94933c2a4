// What a function of the C ABI said.
#ifndef KBUNDLE_TESTS_FFI_SAID_H_
#define KBUNDLE_TESTS_FFI_SAID_H_

#include <gtest/gtest.h>

#include <string>

#include "kbundle/kbundle_c.h"

namespace kbundle::testing {

// Frees the error, which must have this code; its message, "" for success.
inline std::string Said(kb_error* error, int code) {
  if (error == nullptr) return "";
  EXPECT_EQ(kb_error_code(error), code) << kb_error_message(error);
  std::string message = kb_error_message(error);
  kb_error_free(error);
  return message;
}

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_FFI_SAID_H_
