// kbundle_tvm.h, and the C function behind every function of tvm-ffi that is made here. No
// exception leaves either.
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/kbundle_tvm.h"
#include "spec.h"
#include "tvm_function.h"
#include "tvm_functions.h"

namespace kbundle {
namespace {

int Raise(const TvmFunctions& tvm, const Status& status) {
  const bool value = status.code() == StatusCode::kInvalidArgument;
  const std::string text =
      std::string("[kbundle:") + StatusCodeName(status.code()) + "] " + status.message();
  tvm.SetError(value ? "ValueError" : "RuntimeError", text.c_str());
  return -1;
}

int CallFunction(void* self, const TvmAny* arguments, int32_t count, TvmAny* /*result*/) {
  auto* function = static_cast<TvmFunction*>(self);
  try {
    const Status status = function->Call(arguments, count);
    return status.ok() ? 0 : Raise(function->tvm(), status);
  } catch (const std::exception&) {
    function->tvm().SetError("RuntimeError", "[kbundle:RESOURCE_EXHAUSTED] out of memory");
    return -1;
  }
}

Status Register(const kb_bundle& bundle, const char* op, const kb_problem_spec* spec,
                const char* name) {
  KB_ASSIGN_OR_RETURN(const TvmFunctions* tvm, LoadedTvm());
  KB_ASSIGN_OR_RETURN(ProblemSpec given, ToProblemSpec(spec));
  KB_ASSIGN_OR_RETURN(auto function, TvmFunction::Make(tvm, bundle.parts, op, std::move(given)));
  void* object = nullptr;
  const auto drop = [](void* self) { delete static_cast<TvmFunction*>(self); };
  const std::string doing = std::string("making op '") + op + "' function '" + name + "': ";
  if (tvm->FunctionCreate(function.get(), &CallFunction, drop, &object) != 0) {
    return Internal(doing + "tvm-ffi refused to make it");
  }
  function.release();  // NOLINT: the object deletes it
  const TvmText text{name, std::char_traits<char>::length(name)};
  const int failed = tvm->SetGlobal(&text, object, /*replace=*/1);
  tvm->DecRef(object);  // the table has its own
  return failed == 0 ? Status() : Internal(doing + "tvm-ffi refused the name");
}

}  // namespace
}  // namespace kbundle

extern "C" kb_error* kb_tvm_register(const kb_bundle* bundle, const char* op,
                                     const kb_problem_spec* spec, const char* name) {
  return kbundle::Guarded([&]() -> kbundle::Status {
    KB_RETURN_IF_ERROR(kbundle::RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(kbundle::RequirePointer(op, "op"));
    KB_RETURN_IF_ERROR(kbundle::RequirePointer(spec, "spec"));
    KB_RETURN_IF_ERROR(kbundle::RequirePointer(name, "name"));
    return kbundle::Register(*bundle, op, spec, name);
  });
}
