// The control of the two-GPU test: an XLA handler that loads a code object inside execute, which
// kbundle never does. It copies its operand to its result. KB_CONTROL_CUBIN is the code object.
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Stream = struct CUstream_st*;

static ffi::Error Execute(Stream stream, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  static const auto load =
      reinterpret_cast<int (*)(void**, const void*)>(dlsym(driver, "cuModuleLoadData"));
  static const auto copy =
      reinterpret_cast<int (*)(unsigned long long, unsigned long long, size_t, Stream)>(
          dlsym(driver, "cuMemcpyDtoDAsync_v2"));
  static const std::string image = [] {
    std::ifstream file(std::getenv("KB_CONTROL_CUBIN"), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  void* module = nullptr;  // left loaded, as a framework's kernel would be
  if (int code = load(&module, image.data())) {
    return ffi::Error::Internal("cuModuleLoadData: " + std::to_string(code));
  }
  const auto address = [](void* p) { return reinterpret_cast<unsigned long long>(p); };
  if (int code =
          copy(address(y->untyped_data()), address(x.untyped_data()), x.size_bytes(), stream)) {
    return ffi::Error::Internal("cuMemcpyDtoDAsync: " + std::to_string(code));
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(handler, Execute,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::PlatformStream<Stream>>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());

extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* kb_control_execute(
    XLA_FFI_CallFrame* frame) {
  return handler(frame);
}
