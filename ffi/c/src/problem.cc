// What a problem gets, before anything is loaded, as JSON and as plain structs: shapes of results,
// workspace, the variant that would be chosen.
#include <algorithm>
#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/describe.h"
#include "kbundle/select.h"
#include "spec.h"

using kbundle::Guarded;
using kbundle::RequirePointer;
using kbundle::Status;

extern "C" {

kb_error* kb_infer(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                   int32_t kind, char** json) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(json, "json"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::ToProblem(bundle, op, spec));
    KB_ASSIGN_OR_RETURN(std::string text, kbundle::InferJson(*bundle->parts, problem, device_kind));
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
    KB_ASSIGN_OR_RETURN(const auto asked, kbundle::ToQuestion(bundle, op, spec, kind, target, modes,
                                                              "explaining a choice"));
    return kbundle::ReturnText(
        kbundle::ExplainJson(*bundle->parts, asked.problem, asked.device, asked.options), json);
  });
}

kb_error* kb_results(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                     kb_result* results, size_t capacity, size_t* count) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(count, "count"));
    if (capacity != 0) KB_RETURN_IF_ERROR(RequirePointer(results, "results"));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::ToProblem(bundle, op, spec));
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
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::ToProblem(bundle, op, spec));
    KB_ASSIGN_OR_RETURN(*bytes, kbundle::MaxWorkspaceBytes(*bundle->parts, problem, device_kind));
    return Status();
  });
}

kb_error* kb_select(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                    int32_t kind, const char* target, uint64_t modes, char** variant_id) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(variant_id, "variant_id"));
    KB_ASSIGN_OR_RETURN(const auto asked, kbundle::ToQuestion(bundle, op, spec, kind, target, modes,
                                                              "selecting a variant"));
    KB_ASSIGN_OR_RETURN(auto served, kbundle::SelectFirstLaunchable(*bundle->parts, asked.problem,
                                                                    asked.device, asked.options));
    return kbundle::ReturnText(served.bundle->VariantId(served.selected.variant), variant_id);
  });
}

}  // extern "C"
