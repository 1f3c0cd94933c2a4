#include "perf/host.h"

#include <utility>

#include "kbundle/runtime.h"
#include "perf/cases.h"

namespace kbundle::builder {
namespace {

using SharedBundle = std::shared_ptr<const Bundle>;
using SharedPlan = std::shared_ptr<const Plan>;

constexpr int kCalls = 1'000;               // a sample
constexpr int64_t kMostBytes = 64ll << 20;  // of the tensors of a problem worth trying

// Stands where the kernel would be called and does not call it, so that what remains of a launch is
// what it costs beyond a bare call. Plans call small kernels without asking an executor.
struct NoKernel {
  int64_t asked = 0;

  static void Skip(void* state, int64_t, int64_t, void (*)(void*, int64_t, int64_t), void*) {
    ++static_cast<NoKernel*>(state)->asked;
  }
  HostExecutor executor() { return {&NoKernel::Skip, this}; }
};

Result<double> LaunchesNs(const Plan& plan, const HostTensors& tensors, HostExecutor* executor) {
  const LaunchArgs args = tensors.args();
  Status status;
  const double us = MicrosecondsOf([&] {
    for (int i = 0; i < kCalls && status.ok(); ++i) status = plan.Launch(executor, args);
  });
  if (!status.ok()) return status;
  return us * 1e3 / kCalls;
}

void AddPlanRows(BenchRounds& rounds, const SharedBundle& bundle,
                 const std::shared_ptr<Runtime>& runtime, const SharedPlan& plan) {
  rounds.Add(
      BenchRow("host plan, made from the file", "us", "select, read, load; a new runtime each"),
      [bundle, plan]() -> Result<double> {
        Runtime fresh;
        Status status;
        const double us = MicrosecondsOf([&] {
          status = fresh.MakePlan(bundle, plan->problem(), Device::Kind::kHost).status();
        });
        if (!status.ok()) return status;
        return us;
      });
  rounds.Add(BenchRow("host plan, shared one found again", "ns"),
             [bundle, runtime, plan]() -> Result<double> {
               Status status;
               const double us = MicrosecondsOf([&] {
                 for (int i = 0; i < kCalls; ++i) {
                   const auto again =
                       runtime->MakePlan(bundle, plan->problem(), Device::Kind::kHost);
                   if (!again.ok()) status = again.status();
                 }
               });
               if (!status.ok()) return status;
               return us * 1e3 / kCalls;
             });
}

// A plan whose kernel goes through the executor.
Result<SharedPlan> FindExecutedPlan(const SharedBundle& bundle, Runtime& runtime) {
  SharedPlan found;
  const auto accept = [&](const Problem& problem) {
    int64_t bytes = 0;
    for (const TensorSpec& operand : problem.operands) bytes += operand.size_bytes();
    for (const TensorSpec& result : problem.results) bytes += result.size_bytes();
    if (bytes > kMostBytes) return false;
    const auto plan = runtime.MakePlan(bundle, problem, Device::Kind::kHost);
    if (!plan.ok()) return false;
    NoKernel none;
    HostExecutor executor = none.executor();
    const HostTensors tensors(*bundle, problem, (*plan)->workspace_bytes());
    if (!(*plan)->Launch(&executor, tensors.args()).ok() || none.asked == 0) return false;
    found = *plan;
    return true;
  };
  const auto problem = FindSmallProblem(*bundle, HostDevice(), accept);
  if (!problem.ok()) return problem.status();
  return found;
}

void AddLaunchRows(BenchRounds& rounds, const SharedBundle& bundle,
                   const std::shared_ptr<Runtime>& runtime, const SharedPlan& small) {
  auto tensors = std::make_shared<HostTensors>(*bundle, small->problem(), small->workspace_bytes());
  rounds.Add(BenchRow("host launch, kernel included", "ns", small->problem().ToString()),
             [small, tensors] { return LaunchesNs(*small, *tensors, nullptr); });
  BenchRow extra("host launch beyond the bare call", "ns");
  const auto plan = FindExecutedPlan(bundle, *runtime);
  if (!plan.ok()) return rounds.AddSkipped(std::move(extra), plan.status().message());
  extra.note = (*plan)->problem().ToString() + ", kernel left out";
  tensors = std::make_shared<HostTensors>(*bundle, (*plan)->problem(), (*plan)->workspace_bytes());
  rounds.Add(std::move(extra), [plan = *plan, tensors] {
    NoKernel none;
    HostExecutor executor = none.executor();
    return LaunchesNs(*plan, *tensors, &executor);
  });
}

}  // namespace

void AddHostRows(BenchRounds& rounds, const SharedBundle& bundle) {
  auto runtime = std::make_shared<Runtime>();
  const auto problem = FindSmallProblem(*bundle, HostDevice());
  const Result<SharedPlan> plan =
      problem.ok() ? runtime->MakePlan(bundle, *problem, Device::Kind::kHost) : problem.status();
  if (plan.ok()) {
    AddPlanRows(rounds, bundle, runtime, *plan);
    AddLaunchRows(rounds, bundle, runtime, *plan);
    return;
  }
  for (const char* name : {"host plan, made from the file", "host launch beyond the bare call"}) {
    rounds.AddSkipped(BenchRow(name, "us"), plan.status().message());
  }
}

}  // namespace kbundle::builder
