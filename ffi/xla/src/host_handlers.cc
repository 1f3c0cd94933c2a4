// XLA's "cpu" platform runs two stages: instantiate, which sees attributes only, and execute. One
// slot serves all, since the shapes of a call site never change; a program over several virtual
// CPU devices runs the same site concurrently.
#include "frame.h"
#include "intra_op_pool.h"
#include "kbundle/kbundle_c.h"
#include "state.h"

namespace kbundle {
namespace {

StateType host_state("kbundle.call_site.host");

}  // namespace
}  // namespace kbundle

using kbundle::CallSite;
using kbundle::Status;

extern "C" {

XLA_FFI_Error* kb_xla_instantiate_host(XLA_FFI_CallFrame* frame) {
  if (kbundle::IsMetadataQuery(*frame)) {
    return kbundle::AnswerMetadata(*frame, 0, &kbundle::host_state);
  }
  return kbundle::GuardedHandler(*frame->api, [&]() -> Status {
    KB_ASSIGN_OR_RETURN(auto site, CallSite::Make(*frame, kbundle::Device::Kind::kHost));
    return kbundle::host_state.Set(*frame, std::move(site));
  });
}

XLA_FFI_Error* kb_xla_execute_host(XLA_FFI_CallFrame* frame) {
  if (kbundle::IsMetadataQuery(*frame)) return kbundle::AnswerMetadata(*frame, 0, nullptr);
  XLA_FFI_Error* error = nullptr;
  CallSite* site = kbundle::host_state.Get(*frame, &error);
  if (error != nullptr) return error;
  return kbundle::GuardedHandler(*frame->api, [&]() -> Status {
    const kbundle::Plan* plan = site->plan(0);
    if (plan == nullptr) {
      KB_ASSIGN_OR_RETURN(plan, site->Fill(0, *frame));
    }
    kbundle::IntraOpPool pool{frame->api, frame->ctx};
    kbundle::HostExecutor executor = pool.executor();
    return site->Launch(*plan, *frame, &executor);
  });
}

}  // extern "C"
