// Registers all handlers of a platform with an XLA runtime, through that runtime's own table of
// functions: what kbundle.jax does through Python. The runtime asks each handler for its metadata
// then, and the instantiate handler registers the type of its state while it answers (state.h).
#include <string>
#include <string_view>

#include "frame.h"
#include "handles.h"
#include "kbundle/kbundle_c.h"

namespace kbundle {
namespace {

constexpr std::string_view kTarget = "kbundle.call.v1";

XLA_FFI_ByteSpan SpanOf(std::string_view text) { return {text.data(), text.size()}; }

// Every member that this library calls is in the first version of the table.
Status CheckApi(const XLA_FFI_Api& api) {
  constexpr size_t kVersionEnd = offsetof(XLA_FFI_Api, internal_api);
  if (api.struct_size >= kVersionEnd && api.api_version.major_version == XLA_FFI_API_MAJOR) {
    return Status();
  }
  return FailedPrecondition("registering kbundle with XLA: its API has version " +
                            std::to_string(api.api_version.major_version) + "." +
                            std::to_string(api.api_version.minor_version) +
                            ", this kbundle speaks " + std::to_string(XLA_FFI_API_MAJOR) +
                            ".x: take a kbundle that was made for it");
}

Status Register(const XLA_FFI_Api& api, std::string_view platform) {
  KB_RETURN_IF_ERROR(CheckApi(api));
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = SpanOf(kTarget);
  if (platform == "CUDA") {
    args.platform = SpanOf("CUDA");
    args.bundle = {kb_xla_instantiate_cuda, kb_xla_prepare_cuda, kb_xla_initialize_cuda,
                   kb_xla_execute_cuda};
    args.traits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  } else if (platform == "cpu") {
    args.platform = SpanOf("Host");  // XLA's own name of what frameworks call cpu
    args.bundle = {kb_xla_instantiate_host, nullptr, nullptr, kb_xla_execute_host};
  } else {
    return InvalidArgument("registering kbundle with XLA: there are no handlers for platform '" +
                           std::string(platform) + "': give \"cpu\" or \"CUDA\", spelled so");
  }
  return FromXlaError(api, api.XLA_FFI_Handler_Register(&args), "registering kbundle with XLA");
}

}  // namespace
}  // namespace kbundle

extern "C" kb_error* kb_xla_register(const XLA_FFI_Api* api, const char* platform) {
  return kbundle::Guarded([&]() -> kbundle::Status {
    KB_RETURN_IF_ERROR(kbundle::RequirePointer(api, "api"));
    KB_RETURN_IF_ERROR(kbundle::RequirePointer(platform, "platform"));
    return kbundle::Register(*api, platform);
  });
}
