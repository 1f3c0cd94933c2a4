// A variant that is legal may still not run here: a library is missing, a limit is too low, the
// workspace too small. So the list is walked until one resolves, fits and loads, each refusal kept
// for the message; damaged bytes end the walk, since another variant would only hide them.
#include "loader/plan/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"
#include "loader/plan/addresses.h"
#include "loader/resolve/resolve.h"

namespace kbundle {
namespace {

// Select's list, most of which is hardly ever asked for: the first comes without the others.
class Candidates {
 public:
  Candidates(const Bundle& bundle, const Problem& problem, const Device& device,
             SelectOptions options)
      : bundle_(bundle), problem_(problem), device_(device), options_(std::move(options)) {}

  // nullopt: all have been seen. The first call fails as Select does when no variant is legal.
  Result<std::optional<Selected>> Next() {
    if (next_ == 0) {
      KB_ASSIGN_OR_RETURN(Selected first, SelectFirst(bundle_, problem_, device_, options_));
      ++next_;
      return std::optional(first);
    }
    if (next_ == 1) {
      KB_ASSIGN_OR_RETURN(all_, Select(bundle_, problem_, device_, options_));
    }
    if (next_ >= all_.size()) return std::optional<Selected>();
    return std::optional(all_[next_++]);
  }

 private:
  const Bundle& bundle_;
  const Problem& problem_;
  const Device& device_;
  const SelectOptions options_;
  std::vector<Selected> all_;
  size_t next_ = 0;
};

bool SameKinds(const Resolution& a, const Resolution& b) {
  return std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [](const ResolvedStep& x, const ResolvedStep& y) { return x.kind == y.kind; });
}

bool HasTensorMaps(const Resolution& resolution) {
  return std::any_of(resolution.steps.begin(), resolution.steps.end(),
                     [](const ResolvedStep& step) { return !step.tensor_maps.empty(); });
}

// A damaged bundle, or one that contradicts itself: another variant would only hide it.
bool IsFatal(const Status& status) {
  return status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kInternal;
}

const char* ReasonOf(Choice choice) {
  switch (choice) {
    case Choice::kTuned:
      return "fastest when this problem was tuned";
    case Choice::kNearest:
      return "as on the nearest tuned problem";
    case Choice::kManifestOrder:
      return "first legal in manifest order";
    case Choice::kPortable:
      return "no code made for this device, so the portable variant";
    case Choice::kForced:
      return "forced";
    case Choice::kHeuristic:
      return "no record of this problem, so its library's heuristic, asked once";
  }
  return "";
}

// Why the variants of one alignment class were passed over.
struct PassedOver {
  std::string text;
  std::optional<StatusCode> first_code;
  std::optional<int64_t> smallest_workspace;  // of those that did not fit
  bool load_failed = false;                   // legal and fitting, but not loadable

  void Add(const std::string& variant, const Status& why) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", variant, why.message());
    if (!first_code) first_code = why.code();
  }
};

class Chooser {
 public:
  Chooser(const Bundle& bundle, const Problem& problem, const Device& device,
          const PlanOptions& options, const Policy::Snapshot& policy, PlanBuilder& builder)
      : bundle_(bundle),
        problem_(problem),
        device_(device),
        limit_(options.workspace_limit),
        promised_(options.alignment),
        modes_(options.modes),
        policy_(policy),
        builder_(builder) {
    facts_.problem = problem;
    facts_.alignment = promised_;
  }

  Result<ChosenPlan> Run() {
    KB_RETURN_IF_ERROR(ChooseFor(kVectorAlignment));
    if (promised_ < kVectorAlignment) {
      KB_RETURN_IF_ERROR(ChooseFor(promised_));
    }
    ChosenPlan result;
    result.reason = ReasonOf(facts_.choice) + TunedProblem() + notes_;
    result.passed_over = !notes_.empty();
    result.plan = builder_.Finish(std::move(facts_));
    return result;
  }

 private:
  // ", softmax.forward(x=bf16[4,2048])": the tuned problem that decided.
  std::string TunedProblem() const {
    if (selected_.tuned < 0) return "";
    const fb::Index& index = IndexOf(bundle_);
    const auto row = static_cast<uint32_t>(selected_.tuned);
    const uint32_t evidence = index.tuned()->Get(row)->evidence();
    const auto* problem = index.evidence()->Get(evidence)->problem();
    return problem == nullptr ? "" : fmt::format(", {}", problem->string_view());
  }

  // That there is no variant for less aligned addresses is no error: such launches are refused.
  Status ChooseFor(int64_t alignment) {
    const bool optional = alignment != kVectorAlignment;
    Candidates candidates(bundle_, problem_, device_,
                          {.alignment = alignment, .policy = policy_, .modes = modes_});
    PassedOver passed_over;
    for (;;) {
      Result<std::optional<Selected>> candidate = candidates.Next();
      if (!candidate.ok()) return optional ? Status() : std::move(candidate).status();
      if (!candidate->has_value()) break;
      const Selected selected = **candidate;
      Status status = Take(selected.variant, optional, passed_over);
      if (status.ok()) {
        if (!optional) {
          facts_.choice = selected.choice;
          selected_ = selected;
        }
        if (!passed_over.text.empty()) notes_ += "; passed over: " + passed_over.text;
        return Status();
      }
      if (IsFatal(status)) return std::move(status).Annotate(Doing(selected.variant));
      if (refused_problem_ && modes_.batch_invariant) return NoOther(selected.variant, status);
      passed_over.Add(bundle_.VariantId(selected.variant), status);
    }
    return optional && !passed_over.load_failed ? Status() : NothingLeft(passed_over);
  }

  // Makes the variant the plan's next resolution, or says why not.
  Status Take(uint32_t variant, bool second_class, PassedOver& passed_over) {
    const int64_t alignment = second_class ? promised_ : kVectorAlignment;
    refused_problem_ = true;
    KB_ASSIGN_OR_RETURN(Resolution resolution,
                        Resolve(bundle_, problem_, device_, variant, alignment));
    if (second_class) {
      KB_RETURN_IF_ERROR(CheckSecondClass(resolution));
      if (resolution == first_) {  // one resolution serves both classes
        facts_.unaligned_class = 0;
        return Status();
      }
    }
    const int64_t needed = resolution.workspace_bytes;
    if (limit_ >= 0 && needed > limit_) {
      passed_over.smallest_workspace =
          std::min(passed_over.smallest_workspace.value_or(needed), needed);
      return ResourceExhausted(
          fmt::format("needs a workspace of {} bytes, given are {}", needed, limit_));
    }
    refused_problem_ = false;
    Status added = builder_.Add(resolution);
    passed_over.load_failed |= !added.ok();
    KB_RETURN_IF_ERROR(std::move(added));
    if (second_class) facts_.unaligned_class = static_cast<int>(facts_.variants.size());
    facts_.variants.push_back(variant);
    facts_.workspace_bytes = std::max(facts_.workspace_bytes, needed);
    if (!second_class) first_ = std::move(resolution);
    return Status();
  }

  Status CheckSecondClass(const Resolution& resolution) const {
    if (HasTensorMaps(resolution)) {
      return FailedPrecondition("its tensor maps need 16-byte aligned addresses");
    }
    // A captured graph is updated in place, so both classes must enqueue alike.
    if (SameKinds(resolution, first_)) return Status();
    return FailedPrecondition(fmt::format("its {} steps differ in kind from the {} of {}",
                                          resolution.steps.size(), first_.steps.size(),
                                          bundle_.VariantId(first_.variant)));
  }

  Status NothingLeft(const PassedOver& passed_over) const {
    const std::string doing = fmt::format("making a plan for {}", problem_.ToString());
    if (passed_over.smallest_workspace) {
      return ResourceExhausted(fmt::format(
          "{}: no variant fits the workspace of {} bytes, the smallest need is {}; passed over: {}",
          doing, limit_, *passed_over.smallest_workspace, passed_over.text));
    }
    return Status(passed_over.first_code.value_or(StatusCode::kInternal),
                  fmt::format("{}: no legal variant loads on {}; passed over: {}", doing,
                              device_.ToString(), passed_over.text));
  }

  // A smaller batch may get what this one does not, and another variant would give it other bits.
  Status NoOther(uint32_t variant, const Status& why) const {
    return Status(why.code(),
                  fmt::format("{}: {}; batches of every size get this variant or none "
                              "(batch_invariant): divide the batch, or give more workspace",
                              Doing(variant), why.message()));
  }

  std::string Doing(uint32_t variant) const {
    return fmt::format("making a plan for {} from {} with {}", problem_.ToString(), bundle_.path(),
                       bundle_.VariantId(variant));
  }

  const Bundle& bundle_;
  const Problem& problem_;
  const Device& device_;
  const int64_t limit_;
  const int64_t promised_;  // alignment of every address
  const Modes modes_;
  const Policy::Snapshot& policy_;
  PlanBuilder& builder_;
  Resolution first_;  // of 16-byte aligned addresses
  PlanFacts facts_;
  Selected selected_{};
  bool refused_problem_ = false;  // what Take said no to was the problem, not the machine
  std::string notes_;
};

}  // namespace

Result<ChosenPlan> ChoosePlan(const Bundle& bundle, const Problem& problem, const Device& device,
                              const PlanOptions& options, const Policy::Snapshot& policy,
                              PlanBuilder& builder) {
  return Chooser(bundle, problem, device, options, policy, builder).Run();
}

}  // namespace kbundle
