// Plans of the C ABI.
#include <string>
#include <utility>

#include "call_threads.h"
#include "handles.h"
#include "spec.h"

using kbundle::Guarded;
using kbundle::RequirePointer;
using kbundle::Status;

extern "C" {

kb_error* kb_plan_make(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                       int32_t kind, int64_t workspace_limit, kb_plan** out) {
  return kb_plan_make_aligned(bundle, op, spec, kind, workspace_limit, 1, out);
}

kb_error* kb_plan_make_aligned(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                               int32_t kind, int64_t workspace_limit, int64_t alignment,
                               kb_plan** out) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(bundle, "bundle"));
    KB_RETURN_IF_ERROR(RequirePointer(op, "op"));
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::ProblemSpec request, kbundle::ToProblemSpec(spec));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, bundle->bundle->MakeProblem(op, request));
    kbundle::PlanOptions options;
    options.workspace_limit = workspace_limit;
    options.alignment = alignment;
    KB_ASSIGN_OR_RETURN(auto plan, kbundle::Runtime::Global().MakePlan(bundle->bundle, problem,
                                                                       device_kind, options));
    *out = new kb_plan{bundle->bundle, std::move(plan)};
    return Status();
  });
}

int64_t kb_plan_workspace_bytes(const kb_plan* plan) {
  return plan == nullptr ? 0 : plan->plan->workspace_bytes();
}

kb_error* kb_plan_variant(const kb_plan* plan, char** id) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(plan, "plan"));
    KB_RETURN_IF_ERROR(RequirePointer(id, "id"));
    return kbundle::ReturnText(plan->bundle->VariantId(plan->plan->variants().front()), id);
  });
}

kb_error* kb_plan_launch(const kb_plan* plan, void* stream, void* const* operands,
                         void* const* results, void* workspace, int32_t threads) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(plan, "plan"));
    const kbundle::LaunchArgs arguments{operands, results, workspace};
    if (stream != nullptr || threads <= 1) return plan->plan->Launch(stream, arguments);
    kbundle::CallThreads call_threads{threads};
    const kbundle::HostExecutor executor = call_threads.executor();
    return plan->plan->Launch(const_cast<kbundle::HostExecutor*>(&executor), arguments);
  });
}

void kb_plan_release(kb_plan* plan) { delete plan; }

}  // extern "C"
