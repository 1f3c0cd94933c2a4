// What a problem gets, before anything is loaded, as JSON and as plain structs: shapes of results,
// workspace, the variant that would be chosen.
#include <algorithm>
#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/describe.h"
#include "kbundle/format.h"
#include "kbundle/select.h"
#include "spec.h"

namespace kbundle {
namespace {

static_assert(KB_MOST_RANK == kMaxRank);

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

SelectOptions OptionsOf(const Modes& modes) {
  SelectOptions options;
  options.policy = Policy::Global().snapshot();
  options.modes = modes;
  return options;
}

kb_result ToResult(const TensorSpec& result) {
  kb_result row{};
  if (!result.present) return row;
  row.present = 1;
  row.dtype = static_cast<int32_t>(result.dtype);
  row.rank = static_cast<int32_t>(result.dims.size());
  std::copy(result.dims.begin(), result.dims.end(), row.dims);
  return row;
}

}  // namespace
}  // namespace kbundle

using kbundle::Guarded;
using kbundle::RequirePointer;
using kbundle::Status;

extern "C" {

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
    KB_ASSIGN_OR_RETURN(auto asked, kbundle::Modes::FromBits(modes, "explaining a choice"));
    return kbundle::ReturnText(
        kbundle::ExplainJson(*bundle->bundle, problem, device, kbundle::OptionsOf(asked)), json);
  });
}

kb_error* kb_results(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                     kb_result* results, size_t capacity, size_t* count) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(count, "count"));
    if (capacity != 0) KB_RETURN_IF_ERROR(RequirePointer(results, "results"));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::MakeProblem(bundle, op, spec));
    const size_t written = std::min(capacity, problem.results.size());
    std::transform(problem.results.begin(), problem.results.begin() + static_cast<long>(written),
                   results, kbundle::ToResult);
    *count = problem.results.size();
    return Status();
  });
}

kb_error* kb_workspace_bytes(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                             int32_t kind, int64_t* bytes) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bytes, "bytes"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::MakeProblem(bundle, op, spec));
    KB_ASSIGN_OR_RETURN(*bytes, kbundle::MaxWorkspaceBytes(*bundle->bundle, problem, device_kind));
    return Status();
  });
}

kb_error* kb_select(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                    int32_t kind, const char* target, uint64_t modes, char** variant_id) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(variant_id, "variant_id"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::MakeProblem(bundle, op, spec));
    KB_ASSIGN_OR_RETURN(kbundle::Device device, kbundle::ChosenDevice(device_kind, target));
    KB_ASSIGN_OR_RETURN(auto asked, kbundle::Modes::FromBits(modes, "selecting a variant"));
    KB_ASSIGN_OR_RETURN(auto chosen,
                        kbundle::SelectFirstLaunchable(*bundle->bundle, problem, device,
                                                       kbundle::OptionsOf(asked)));
    return kbundle::ReturnText(bundle->bundle->VariantId(chosen.variant), variant_id);
  });
}

}  // extern "C"
