// XLA owns what Set gave it from the moment that it says so, and no earlier: the call site is
// released only after success. Errors for a time without memory are made here, while programs are
// compiled.
#include "state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "frame.h"

namespace kbundle {
namespace {

// State per stage, as this file passes it, came with 0.3 (jaxlib 0.9.1).
constexpr int kOldestMinor = 3;

void DeleteCallSite(void* site) { delete static_cast<CallSite*>(site); }

XLA_FFI_TypeInfo call_site_info{XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr, &DeleteCallSite};

}  // namespace

Status StateType::Register(const XLA_FFI_Api& api) {
  const std::lock_guard lock(mutex_);
  if (id_.type_id != 0) return Status();
  // The address makes the name unique should the process ever hold two copies of this library.
  const std::string name =
      std::string(name_) + "." + std::to_string(reinterpret_cast<uintptr_t>(this));
  XLA_FFI_Type_Register_Args args{};
  args.struct_size = XLA_FFI_Type_Register_Args_STRUCT_SIZE;
  args.name = {name.c_str(), name.size()};
  args.type_id = &id_;
  args.type_info = &call_site_info;
  return FromXlaError(api, api.XLA_FFI_Type_Register(&args), "registering a state type with XLA");
}

Status StateType::Set(const XLA_FFI_CallFrame& frame, std::unique_ptr<CallSite> site) {
  KeepErrorsReady(*frame.api);  // again: some may have been used since
  XLA_FFI_State_Set_Args args{};
  args.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE;
  args.ctx = frame.ctx;
  args.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
  args.type_id = &id_;
  args.state = site.get();
  KB_RETURN_IF_ERROR(FromXlaError(*frame.api, frame.api->XLA_FFI_State_Set(&args),
                                  "handing a call site's state to XLA"));
  site.release();
  return Status();
}

XLA_FFI_Error* AnswerMetadata(const XLA_FFI_CallFrame& frame, XLA_FFI_Handler_Traits traits,
                              StateType* type) noexcept {
  KeepErrorsReady(*frame.api);
  return GuardedHandler(*frame.api, [&]() -> Status {
    const XLA_FFI_Api_Version& runtime = frame.api->api_version;
    if (runtime.major_version != XLA_FFI_API_MAJOR || runtime.minor_version < kOldestMinor) {
      return Unimplemented("registering kbundle's handlers: this jaxlib has XLA FFI API " +
                           std::to_string(runtime.major_version) + "." +
                           std::to_string(runtime.minor_version) + "; " +
                           std::to_string(XLA_FFI_API_MAJOR) + "." + std::to_string(kOldestMinor) +
                           " or later of that major is needed; use jax 0.9.1 or newer");
    }
    auto* extension = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame.extension_start);
    XLA_FFI_Metadata& metadata = *extension->metadata;
    metadata.api_version.major_version = XLA_FFI_API_MAJOR;
    metadata.api_version.minor_version = std::min(XLA_FFI_API_MINOR, runtime.minor_version);
    metadata.traits = traits;
    if (type == nullptr) return Status();
    KB_RETURN_IF_ERROR(type->Register(*frame.api));
    metadata.state_type_id = type->id();
    return Status();
  });
}

}  // namespace kbundle
