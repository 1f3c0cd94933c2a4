// A host plan: the same parameter tables as on a GPU, given to functions of a host code object.
//
// Page faults of a fresh result cost more than most kernels (64 MiB of a*x+b: 26 ms into fresh
// pages, 2.2 ms in place), so large results are asked for in huge pages before the first step.
#include "loader/host/plan_host.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kbundle/bundle_generated.h"
#include "loader/host/float_rules.h"
#include "loader/open/index.h"
#include "loader/plan/addresses.h"
#include "loader/plan/parameters.h"
#include "loader/provider/provider.h"

namespace kbundle {
namespace {

constexpr int64_t kHugePageBytes = 2 << 20;
constexpr int64_t kWorthHugePages = 8 << 20;

struct Step {
  StepKind kind = StepKind::kKernel;
  std::shared_ptr<const HostObject> object;  // keeps the function mapped
  HostFunction function = nullptr;
  ParameterTable parameters;
  int64_t range = 1, grain = 1;
  Pointer target, source;  // memset and copy
  size_t bytes = 0;
  uint8_t value = 0;

  void Run(const HostExecutor* executor, const LaunchArgs& args) const {
    switch (kind) {
      case StepKind::kKernel:
        RunKernel(executor, args);
        break;
      case StepKind::kMemset:
        std::memset(target.At(args), value, bytes);
        break;
      case StepKind::kCopy:
        std::memmove(target.At(args), source.At(args), bytes);
        break;
      case StepKind::kOwn:
        break;  // refused when the plan was made
    }
  }

 private:
  struct Call {
    HostFunction function;
    const void* const* values;
  };

  // On whatever thread.
  static void Run(const Call& call, int64_t begin, int64_t end) {
    const FloatRules rules;
    call.function(begin, end, call.values);
  }

  void RunKernel(const HostExecutor* executor, const LaunchArgs& args) const {
    ParameterTable::Scratch scratch;
    parameters.Fill(args, nullptr, scratch);
    Call call{function, scratch.values};
    if (executor == nullptr || range <= grain) return Run(call, 0, range);
    executor->parallel_for(
        executor->state, range, grain,
        [](void* context, int64_t begin, int64_t end) {
          Run(*static_cast<const Call*>(context), begin, end);
        },
        &call);
  }
};

struct LargeResult {
  uint32_t result;
  int64_t bytes;
};

// In-out results have their pages already.
std::vector<LargeResult> LargeResults(const Bundle& bundle, const Problem& problem) {
  std::vector<LargeResult> large;
  for (uint32_t i = 0; i < problem.results.size(); ++i) {
    const TensorSpec& result = problem.results[i];
    const bool in_place = OpOf(bundle, problem.op).results()->Get(i)->alias() >= 0;
    if (!result.present || in_place || result.size_bytes() < kWorthHugePages) continue;
    large.push_back({i, result.size_bytes()});
  }
  return large;
}

// Only the whole huge pages inside: the neighbours' memory is not ours to advise. A refusal (huge
// pages switched off, memory of another kind) costs speed, not correctness.
void AdviseHugePages(void* memory, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (begin + kHugePageBytes - 1) & ~uintptr_t{kHugePageBytes - 1};
  const uintptr_t last = (begin + static_cast<uintptr_t>(bytes)) & ~uintptr_t{kHugePageBytes - 1};
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

class HostPlan final : public Plan {
 public:
  HostPlan(const Bundle& bundle, PlanFacts facts, std::vector<std::vector<Step>> resolutions)
      : addresses_(bundle, facts),
        large_results_(LargeResults(bundle, facts.problem)),
        resolutions_(std::move(resolutions)) {
    problem_ = std::move(facts.problem);
    workspace_bytes_ = facts.workspace_bytes;
    variants_ = std::move(facts.variants);
    choice_ = facts.choice;
  }

  Status Launch(void* stream, const LaunchArgs& args) const override {
    const int alignment_class = addresses_.Classify(args);
    if (alignment_class < 0) [[unlikely]] {
      return addresses_.Explain(args).Annotate("launching " + problem_.ToString());
    }
    for (const LargeResult& large : large_results_) {
      AdviseHugePages(args.results[large.result], large.bytes);
    }
    const auto* executor = static_cast<const HostExecutor*>(stream);
    for (const Step& step : resolutions_[alignment_class]) step.Run(executor, args);
    return Status();
  }

 private:
  AddressRules addresses_;
  std::vector<LargeResult> large_results_;
  std::vector<std::vector<Step>> resolutions_;  // by alignment class
};

class HostPlanBuilder final : public PlanBuilder {
 public:
  HostPlanBuilder(const Bundle& bundle, HostObjects& objects)
      : bundle_(bundle), objects_(objects) {}

  Status Add(const Resolution& resolution) override {
    std::vector<Step> steps;
    for (const ResolvedStep& resolved : resolution.steps) {
      KB_ASSIGN_OR_RETURN(Step step, MakeStep(resolved));
      steps.push_back(std::move(step));
    }
    resolutions_.push_back(std::move(steps));
    return Status();
  }

  std::unique_ptr<Plan> Finish(PlanFacts facts) override {
    return std::make_unique<HostPlan>(bundle_, std::move(facts), std::move(resolutions_));
  }

 private:
  Result<Step> MakeStep(const ResolvedStep& resolved) {
    Step step;
    step.kind = resolved.kind;
    step.target = resolved.target;
    step.source = resolved.source;
    step.bytes = static_cast<size_t>(resolved.bytes);
    step.value = resolved.value;
    if (step.kind == StepKind::kOwn) {
      return Internal(
          fmt::format("a step of provider {}'s own is for GPUs", resolved.provider->name()));
    }
    if (step.kind != StepKind::kKernel) return step;
    if (!resolved.tensor_maps.empty()) {
      return Internal(fmt::format("kernel {}: tensor maps are for GPUs", resolved.symbol));
    }
    KB_ASSIGN_OR_RETURN(step.object, objects_.Load(bundle_, resolved.blob, &bases_));
    KB_ASSIGN_OR_RETURN(step.function, step.object->Find(resolved));
    step.parameters = ParameterTable(resolved);
    step.range = resolved.range;
    step.grain = resolved.grain;
    return step;
  }

  const Bundle& bundle_;
  HostObjects& objects_;
  Bundle::BaseCache bases_;
  std::vector<std::vector<Step>> resolutions_;
};

}  // namespace

std::unique_ptr<PlanBuilder> NewHostPlanBuilder(const Bundle& bundle, HostObjects& objects) {
  return std::make_unique<HostPlanBuilder>(bundle, objects);
}

}  // namespace kbundle
