// Promise: one call of C registers all handlers of a platform with an XLA runtime, and what cannot be
// registered is an error of kbundle's. (tests/python/test_register.py does it with JAX's own XLA.)
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "kbundle/kbundle_c.h"
#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  int code;
  std::string message;
};

namespace kbundle::testing {
namespace {

std::map<std::string, XLA_FFI_Handler_Bundle>& Registered() {
  static std::map<std::string, XLA_FFI_Handler_Bundle> handlers;
  return handlers;
}

// Of a runtime that keeps what it is given, once for each name and platform.
XLA_FFI_Error* Register(XLA_FFI_Handler_Register_Args* args) {
  const std::string name(args->name.ptr, args->name.len);
  const std::string platform(args->platform.ptr, args->platform.len);
  const bool fresh = Registered().emplace(name + "@" + platform, args->bundle).second;
  return fresh ? nullptr : new XLA_FFI_Error{6, "already registered"};
}

XLA_FFI_Api ApiOf(int major = XLA_FFI_API_MAJOR) {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version.major_version = major;
  api.XLA_FFI_Error_GetMessage = [](XLA_FFI_Error_GetMessage_Args* args) {
    args->message = args->error->message.c_str();
  };
  api.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args* args) { delete args->error; };
  api.XLA_FFI_Handler_Register = &Register;
  return api;
}

std::string Refused(kb_error* error, int code) {
  if (error == nullptr) return "registered";
  EXPECT_EQ(kb_error_code(error), code);
  std::string message = kb_error_message(error);
  kb_error_free(error);
  return message;
}

TEST(XlaRegister, RegistersEachPlatformAndSaysWhatXlaRefuses) {
  Registered().clear();
  const XLA_FFI_Api api = ApiOf();
  ASSERT_EQ(kb_xla_register(&api, "cpu"), nullptr);
  ASSERT_EQ(kb_xla_register(&api, "CUDA"), nullptr);
  const XLA_FFI_Handler_Bundle host = Registered().at("kbundle.call.v1@Host");
  EXPECT_EQ(host.instantiate, &kb_xla_instantiate_host);
  EXPECT_EQ(host.execute, &kb_xla_execute_host);
  EXPECT_EQ(host.prepare, nullptr);
  const XLA_FFI_Handler_Bundle cuda = Registered().at("kbundle.call.v1@CUDA");
  EXPECT_EQ(cuda.prepare, &kb_xla_prepare_cuda);
  EXPECT_EQ(cuda.initialize, &kb_xla_initialize_cuda);
  EXPECT_EQ(cuda.execute, &kb_xla_execute_cuda);
  EXPECT_NE(Refused(kb_xla_register(&api, "cpu"), 13).find("already registered"),
            std::string::npos);
}

TEST(XlaRegister, RefusesOtherPlatformsAndOtherVersions) {
  const XLA_FFI_Api api = ApiOf(), newer = ApiOf(XLA_FFI_API_MAJOR + 1);
  EXPECT_NE(Refused(kb_xla_register(&api, "cuda"), 3).find("CUDA"), std::string::npos);
  EXPECT_NE(Refused(kb_xla_register(&newer, "cpu"), 9).find("version"), std::string::npos);
  EXPECT_NE(Refused(kb_xla_register(nullptr, "cpu"), 3), "registered");
  EXPECT_NE(Refused(kb_xla_register(&api, nullptr), 3), "registered");
}

}  // namespace
}  // namespace kbundle::testing
