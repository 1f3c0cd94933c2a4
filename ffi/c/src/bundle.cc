// Bundles, policy and statistics of the C ABI: each function checks its pointers, calls one
// function of the loader and hands out what it returned.
#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/describe.h"
#include "kbundle/open_bundles.h"
#include "kbundle/select.h"
#include "spec.h"

namespace kbundle {
namespace {

using Opener = Result<std::shared_ptr<const Bundle>> (*)(const std::string&, const std::string&);

Status OpenBy(Opener opener, const char* path, const char* name, kb_bundle** out) {
  KB_RETURN_IF_ERROR(RequirePointer(path, "path"));
  KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
  KB_ASSIGN_OR_RETURN(auto bundle, opener(path, name == nullptr ? "" : name));
  const std::string known(name == nullptr || *name == '\0' ? bundle->name() : name);
  *out = new kb_bundle{known, std::move(bundle)};
  return Status();
}

Result<Device> ChosenDevice(Device::Kind kind, const char* target) {
  if (target == nullptr) return Runtime::Global().CurrentDevice(kind);
  KB_ASSIGN_OR_RETURN(Device device, DeviceFromTargetName(target));
  if (device.kind != kind) {
    return InvalidArgument(std::string("explaining for target '") + target +
                           "': it is not a target of the device kind that was asked for");
  }
  return device;
}

Result<Problem> MakeProblem(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec) {
  KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
  KB_RETURN_IF_ERROR(RequirePointer(op, "op"));
  KB_ASSIGN_OR_RETURN(ProblemSpec request, ToProblemSpec(spec));
  return bundle->bundle->MakeProblem(op, request);
}

}  // namespace
}  // namespace kbundle

using kbundle::Guarded;
using kbundle::RequirePointer;
using kbundle::Status;

extern "C" {

kb_error* kb_bundle_open(const char* path, const char* name, kb_bundle** out) {
  return Guarded([&] { return kbundle::OpenBy(&kbundle::OpenShared, path, name, out); });
}

kb_error* kb_bundle_reload(const char* path, const char* name, kb_bundle** out) {
  return Guarded([&] { return kbundle::OpenBy(&kbundle::ReloadShared, path, name, out); });
}

kb_error* kb_bundle_find(const char* name, const char* op, kb_bundle** out) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(name, "name"));
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    KB_ASSIGN_OR_RETURN(auto bundle, kbundle::FindOpen(name, op == nullptr ? "" : op));
    *out = new kb_bundle{name, std::move(bundle)};
    return Status();
  });
}

const void* kb_bundle_identity(const kb_bundle* bundle) {
  return bundle == nullptr ? nullptr : bundle->bundle.get();
}

kb_error* kb_bundle_close(const kb_bundle* bundle) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    return kbundle::CloseShared(bundle->name, bundle->bundle);
  });
}

void kb_bundle_release(kb_bundle* bundle) { delete bundle; }

kb_error* kb_bundle_verify(const kb_bundle* bundle) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    return bundle->bundle->VerifyAll();
  });
}

kb_error* kb_bundle_describe(const kb_bundle* bundle, const char* op, int32_t whole, char** json) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(json, "json"));
    KB_ASSIGN_OR_RETURN(
        std::string text,
        kbundle::DescribeJson(*bundle->bundle, op == nullptr ? "" : op, whole != 0));
    return kbundle::ReturnText(text, json);
  });
}

kb_error* kb_infer(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                   int32_t kind, char** json) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(json, "json"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::MakeProblem(bundle, op, spec));
    KB_ASSIGN_OR_RETURN(std::string text,
                        kbundle::InferJson(*bundle->bundle, problem, device_kind));
    return kbundle::ReturnText(text, json);
  });
}

kb_error* kb_explain(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                     int32_t kind, const char* target, char** json) {
  return kb_explain_modes(bundle, op, spec, kind, target, 0, json);
}

kb_error* kb_explain_modes(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                           int32_t kind, const char* target, uint64_t modes, char** json) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(json, "json"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::MakeProblem(bundle, op, spec));
    KB_ASSIGN_OR_RETURN(kbundle::Device device, kbundle::ChosenDevice(device_kind, target));
    kbundle::SelectOptions options;
    options.policy = kbundle::Policy::Global().snapshot();
    KB_ASSIGN_OR_RETURN(options.modes, kbundle::Modes::FromBits(modes, "explaining a choice"));
    return kbundle::ReturnText(kbundle::ExplainJson(*bundle->bundle, problem, device, options),
                               json);
  });
}

kb_error* kb_policy_force(const kb_bundle* bundle, const char* variant_id) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(variant_id, "variant_id"));
    return kbundle::Policy::Global().Force(*bundle->bundle, variant_id);
  });
}

kb_error* kb_policy_deny(const kb_bundle* bundle, const char* variant_id) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(variant_id, "variant_id"));
    return kbundle::Policy::Global().Deny(*bundle->bundle, variant_id);
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

kb_error* kb_stats(char** json) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(json, "json"));
    return kbundle::ReturnText(kbundle::StatsJson(kbundle::Runtime::Global().stats()), json);
  });
}

}  // extern "C"
