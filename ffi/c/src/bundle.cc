// Bundles that are open, policy, log and statistics of the C ABI: each function checks its
// pointers, calls one function of the loader and hands out what it returned.
#include <mutex>
#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/describe.h"
#include "kbundle/log.h"
#include "kbundle/open_bundles.h"
#include "kbundle/select.h"

namespace kbundle {
namespace {

// What the C function and its state are, where the loader's function finds them. It is replaced
// while nobody is in a call (SetLog waits), so one will do.
struct CLog {
  void (*function)(void* state, int32_t severity, const char* message) = nullptr;
  void* state = nullptr;
};

void CallCLog(void* log, Severity severity, const char* message) {
  const auto& to = *static_cast<const CLog*>(log);
  to.function(to.state, static_cast<int32_t>(severity), message);
}

void LogTo(void (*function)(void*, int32_t, const char*), void* state) {
  static std::mutex& one_at_a_time = *new std::mutex();
  static CLog& log = *new CLog();
  const std::lock_guard lock(one_at_a_time);
  SetLog(nullptr, nullptr);
  log = {function, state};
  if (function != nullptr) SetLog(&CallCLog, &log);
}

// A wish is of the process: enough that one part has the variant. The error is the first's.
template <typename Wish>
Status InAnyPart(const Parts& parts, Wish wish) {
  Status first;
  for (const auto& part : parts.all()) {
    Status status = wish(*part);
    if (status.ok()) return status;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace
}  // namespace kbundle

using kbundle::Guarded;
using kbundle::RequirePointer;
using kbundle::Status;

extern "C" {

kb_error* kb_bundle_find(const char* name, const char* op, kb_bundle** out) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(name, "name"));
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    KB_ASSIGN_OR_RETURN(auto parts, kbundle::FindOpen(name, op == nullptr ? "" : op));
    *out = new kb_bundle{name, std::move(parts)};
    return Status();
  });
}

const void* kb_bundle_identity(const kb_bundle* bundle) {
  return bundle == nullptr ? nullptr : bundle->parts.get();
}

kb_error* kb_bundle_close(const kb_bundle* bundle) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    return kbundle::CloseShared(bundle->name, bundle->parts);
  });
}

void kb_bundle_release(kb_bundle* bundle) { delete bundle; }

kb_error* kb_bundle_verify(const kb_bundle* bundle) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    return bundle->parts->VerifyAll();
  });
}

kb_error* kb_bundle_describe(const kb_bundle* bundle, const char* op, int32_t whole, char** json) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(json, "json"));
    const auto detail = whole > 0    ? kbundle::Detail::kWhole
                        : whole == 0 ? kbundle::Detail::kInterface
                                     : kbundle::Detail::kName;
    KB_ASSIGN_OR_RETURN(std::string text,
                        kbundle::DescribeJson(*bundle->parts, op == nullptr ? "" : op, detail));
    return kbundle::ReturnText(text, json);
  });
}

kb_error* kb_policy_force(const kb_bundle* bundle, const char* variant_id) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(variant_id, "variant_id"));
    return kbundle::InAnyPart(*bundle->parts, [&](const kbundle::Bundle& part) {
      return kbundle::Policy::Global().Force(part, variant_id);
    });
  });
}

kb_error* kb_policy_deny(const kb_bundle* bundle, const char* variant_id) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(variant_id, "variant_id"));
    return kbundle::InAnyPart(*bundle->parts, [&](const kbundle::Bundle& part) {
      return kbundle::Policy::Global().Deny(part, variant_id);
    });
  });
}

// The three below cannot report: an allocation that fails inside them leaves the policy as it was.
void kb_policy_clear(void) {
  kb_error_free(Guarded([] { return kbundle::Policy::Global().Clear(), Status(); }));
}

void kb_policy_strict(int32_t strict) {
  kb_error_free(Guarded([&] { return kbundle::Policy::Global().Strict(strict != 0), Status(); }));
}

void kb_policy_allow_portable(int32_t allow) {
  kb_error_free(
      Guarded([&] { return kbundle::Policy::Global().AllowPortable(allow != 0), Status(); }));
}

uint64_t kb_policy_generation(void) { return kbundle::Policy::Global().generation(); }

void kb_log_to(void (*log)(void* state, int32_t severity, const char* message), void* state) {
  kb_error_free(Guarded([&] { return kbundle::LogTo(log, state), Status(); }));
}

kb_error* kb_stats(char** json) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(json, "json"));
    return kbundle::ReturnText(kbundle::StatsJson(kbundle::Runtime::Global().stats()), json);
  });
}

}  // extern "C"
