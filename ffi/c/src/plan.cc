// Plans of the C ABI. A launch is typed by the plan's device kind: what Plan::Launch takes as one
// untyped pointer comes in through a function of its own for each kind.
#include <string>
#include <utility>

#include "call_threads.h"
#include "handles.h"
#include "spec.h"

namespace kbundle {
namespace {

constexpr int32_t kMostThreads = 1024;

const char* Spelled(Device::Kind kind) { return kind == Device::Kind::kHost ? "the host" : "CUDA"; }

// What can be told of a launch before any address is read.
Status CheckLaunch(const kb_plan* plan, Device::Kind wanted, const LaunchArgs& args) {
  KB_RETURN_IF_ERROR(RequirePointer(plan, "plan"));
  if (plan->kind != wanted) {
    return InvalidArgument(std::string("launching a plan for ") + Spelled(wanted) +
                           ": it was made for " + Spelled(plan->kind) +
                           "; launch it with the function of that device kind");
  }
  const Problem& problem = plan->plan->problem();
  if (!problem.operands.empty()) KB_RETURN_IF_ERROR(RequirePointer(args.operands, "operands"));
  if (!problem.results.empty()) KB_RETURN_IF_ERROR(RequirePointer(args.results, "results"));
  return Status();
}

Status LaunchHost(const kb_plan* plan, const HostExecutor* executor, const LaunchArgs& args) {
  return plan->plan->Launch(const_cast<HostExecutor*>(executor), args);
}

}  // namespace
}  // namespace kbundle

using kbundle::Device;
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
  return kb_plan_make_modes(bundle, op, spec, kind, workspace_limit, alignment, 0, out);
}

kb_error* kb_plan_make_modes(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                             int32_t kind, int64_t workspace_limit, int64_t alignment,
                             uint64_t modes, kb_plan** out) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::ToProblem(bundle, op, spec));
    kbundle::PlanOptions options;
    options.workspace_limit = workspace_limit;
    options.alignment = alignment;
    KB_ASSIGN_OR_RETURN(options.modes, kbundle::Modes::FromBits(modes, "making a plan"));
    KB_ASSIGN_OR_RETURN(auto made, kbundle::Runtime::Global().MakePlan(*bundle->parts, problem,
                                                                       device_kind, options));
    *out = new kb_plan{device_kind, std::move(made.bundle), std::move(made.plan)};
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

kb_error* kb_plan_launch_cuda(const kb_plan* plan, struct CUstream_st* stream,
                              void* const* operands, void* const* results, void* workspace) {
  return Guarded([&]() -> Status {
    const kbundle::LaunchArgs arguments{operands, results, workspace};
    KB_RETURN_IF_ERROR(kbundle::CheckLaunch(plan, Device::Kind::kCuda, arguments));
    return plan->plan->Launch(stream, arguments);
  });
}

kb_error* kb_plan_launch_host(const kb_plan* plan, const kb_host_executor* executor,
                              void* const* operands, void* const* results, void* workspace) {
  return Guarded([&]() -> Status {
    const kbundle::LaunchArgs arguments{operands, results, workspace};
    KB_RETURN_IF_ERROR(kbundle::CheckLaunch(plan, Device::Kind::kHost, arguments));
    if (executor == nullptr) return kbundle::LaunchHost(plan, nullptr, arguments);
    if (executor->parallel_for == nullptr) {
      return kbundle::InvalidArgument(
          "launching a plan for the host: the executor's parallel_for is NULL; give a function, or "
          "NULL for the executor to run on the calling thread");
    }
    const kbundle::HostExecutor given{executor->parallel_for, executor->state};
    return kbundle::LaunchHost(plan, &given, arguments);
  });
}

kb_error* kb_plan_launch_threads(const kb_plan* plan, int32_t threads, void* const* operands,
                                 void* const* results, void* workspace) {
  return Guarded([&]() -> Status {
    const kbundle::LaunchArgs arguments{operands, results, workspace};
    KB_RETURN_IF_ERROR(kbundle::CheckLaunch(plan, Device::Kind::kHost, arguments));
    if (threads < 1 || threads > kbundle::kMostThreads) {
      return kbundle::InvalidArgument("launching a plan for the host: threads is " +
                                      std::to_string(threads) + "; it must be 1 to " +
                                      std::to_string(kbundle::kMostThreads));
    }
    kbundle::CallThreads call_threads{threads};
    const kbundle::HostExecutor executor = call_threads.executor();
    return kbundle::LaunchHost(plan, threads == 1 ? nullptr : &executor, arguments);
  });
}

void kb_plan_release(kb_plan* plan) { delete plan; }

}  // extern "C"
