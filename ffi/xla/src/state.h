// A call site's state in XLA's hands, one type per platform.
//
// XLA keeps a registry of types per plugin and gives ids out of it, so the two platforms never
// share an id. A state type has to be known before the handler that makes it. Registering it
// through Python would need a backend first; instead the instantiate handler registers its own type
// while it answers the query for its metadata, which XLA sends when the handler is registered.
#ifndef KBUNDLE_FFI_STATE_H_
#define KBUNDLE_FFI_STATE_H_

#include <memory>
#include <mutex>

#include "call_site.h"
#include "kbundle/status.h"
#include "xla/ffi/api/c_api.h"

namespace kbundle {

// The two objects of this type live for ever. Thread-safe.
class StateType {
 public:
  explicit StateType(const char* name) : name_(name) {}

  // Once per platform; later calls find the id already given.
  Status Register(const XLA_FFI_Api& api);
  XLA_FFI_TypeId id() const { return id_; }

  // Gives the call site to XLA, which deletes it with the executable.
  Status Set(const XLA_FFI_CallFrame& frame, std::unique_ptr<CallSite> site);

  // Null when XLA has none; *error is then set. About ten nanoseconds.
  CallSite* Get(const XLA_FFI_CallFrame& frame, XLA_FFI_Error** error) {
    XLA_FFI_State_Get_Args args;
    args.struct_size = XLA_FFI_State_Get_Args_STRUCT_SIZE;
    args.extension_start = nullptr;
    args.ctx = frame.ctx;
    args.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
    args.type_id = &id_;
    args.state = nullptr;
    *error = frame.api->XLA_FFI_State_Get(&args);
    return static_cast<CallSite*>(args.state);
  }

 private:
  const char* const name_;
  std::mutex mutex_;
  XLA_FFI_TypeId id_ = XLA_FFI_UNKNOWN_TYPE_ID;
};

// The metadata query arrives as an ordinary call with an extension in front.
inline bool IsMetadataQuery(const XLA_FFI_CallFrame& frame) {
  return frame.extension_start != nullptr &&
         frame.extension_start->type == XLA_FFI_Extension_Metadata;
}

// Answers it with the lower of our API version and the runtime's, since a runtime refuses a handler
// newer than itself. type: the state type of an instantiate handler, else null.
XLA_FFI_Error* AnswerMetadata(const XLA_FFI_CallFrame& frame, XLA_FFI_Handler_Traits traits,
                              StateType* type) noexcept;

}  // namespace kbundle

#endif  // KBUNDLE_FFI_STATE_H_
