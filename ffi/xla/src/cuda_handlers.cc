// XLA's "CUDA" platform. Prepare fills the device's slot, with the device's context current and
// before any collective of the run is in flight; it and initialize run for every call on every
// execution, so once the slot is filled both are a few loads. Execute may run while a stream is
// being captured: it only launches.
#include <string>

#include "frame.h"
#include "kbundle/kbundle_c.h"
#include "state.h"

namespace kbundle {
namespace {

StateType cuda_state("kbundle.call_site.cuda");

// The call site and the device of a frame.
struct Here {
  CallSite* site = nullptr;
  int32_t device = -1;
};

XLA_FFI_Error* Locate(const XLA_FFI_CallFrame& frame, Here* here) {
  XLA_FFI_Error* error = nullptr;
  here->site = cuda_state.Get(frame, &error);
  if (error != nullptr) return error;
  XLA_FFI_DeviceOrdinal_Get_Args args;
  args.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE;
  args.extension_start = nullptr;
  args.ctx = frame.ctx;
  args.device_ordinal = -1;
  error = frame.api->XLA_FFI_DeviceOrdinal_Get(&args);
  here->device = args.device_ordinal;
  if (error != nullptr || (here->device >= 0 && here->device < CallSite::kSlots)) return error;
  return GuardedHandler(*frame.api, [&]() -> Status {
    return Unimplemented("finding the device of a call: XLA says ordinal " +
                         std::to_string(here->device) + ", kbundle knows 0 to " +
                         std::to_string(CallSite::kSlots - 1) +
                         "; hide devices with CUDA_VISIBLE_DEVICES");
  });
}

Status NotPrepared(int32_t device) {
  return Internal("running a call on device " + std::to_string(device) +
                  ": XLA did not prepare it there first; please report this");
}

Status GetStream(const XLA_FFI_CallFrame& frame, void** stream) {
  XLA_FFI_Stream_Get_Args args{};
  args.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  args.ctx = frame.ctx;
  KB_RETURN_IF_ERROR(
      FromXlaError(*frame.api, frame.api->XLA_FFI_Stream_Get(&args), "asking XLA for the stream"));
  *stream = args.stream;
  return Status();
}

}  // namespace
}  // namespace kbundle

using kbundle::CallSite;
using kbundle::Here;
using kbundle::Status;

extern "C" {

XLA_FFI_Error* kb_xla_instantiate_cuda(XLA_FFI_CallFrame* frame) {
  if (kbundle::IsMetadataQuery(*frame)) {
    return kbundle::AnswerMetadata(*frame, 0, &kbundle::cuda_state);
  }
  return kbundle::GuardedHandler(*frame->api, [&]() -> Status {
    KB_ASSIGN_OR_RETURN(auto site, CallSite::Make(*frame, kbundle::Device::Kind::kCuda));
    return kbundle::cuda_state.Set(*frame, std::move(site));
  });
}

XLA_FFI_Error* kb_xla_prepare_cuda(XLA_FFI_CallFrame* frame) {
  if (kbundle::IsMetadataQuery(*frame)) return kbundle::AnswerMetadata(*frame, 0, nullptr);
  Here here;
  if (XLA_FFI_Error* error = kbundle::Locate(*frame, &here)) return error;
  if (here.site->plan(here.device) != nullptr) return nullptr;
  return kbundle::GuardedHandler(
      *frame->api, [&]() -> Status { return here.site->Fill(here.device, *frame).status(); });
}

XLA_FFI_Error* kb_xla_initialize_cuda(XLA_FFI_CallFrame* frame) {
  if (kbundle::IsMetadataQuery(*frame)) return kbundle::AnswerMetadata(*frame, 0, nullptr);
  Here here;
  if (XLA_FFI_Error* error = kbundle::Locate(*frame, &here)) return error;
  if (here.site->plan(here.device) != nullptr) return nullptr;
  return kbundle::GuardedHandler(*frame->api, [&] { return kbundle::NotPrepared(here.device); });
}

XLA_FFI_Error* kb_xla_execute_cuda(XLA_FFI_CallFrame* frame) {
  if (kbundle::IsMetadataQuery(*frame)) {
    return kbundle::AnswerMetadata(*frame, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE,
                                   nullptr);
  }
  Here here;
  if (XLA_FFI_Error* error = kbundle::Locate(*frame, &here)) return error;
  return kbundle::GuardedHandler(*frame->api, [&]() -> Status {
    const kbundle::Plan* plan = here.site->plan(here.device);
    if (plan == nullptr) return kbundle::NotPrepared(here.device);
    void* stream = nullptr;
    KB_RETURN_IF_ERROR(kbundle::GetStream(*frame, &stream));
    return here.site->Launch(*plan, *frame, stream);
  });
}

}  // extern "C"
