// Workspace sizes: what a variant's regions take together.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kbundle/select.h"
#include "loader/open/bundle_rep.h"
#include "loader/open/index.h"
#include "loader/open/variant_rows.h"
#include "loader/select/candidates.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

// Every class a plan may be asked for: bytes that all addresses are a multiple of.
constexpr int64_t kAlignments[] = {16, 8, 4, 2, 1};

const fb::Template& TemplateOf(const fb::Index& index, uint32_t variant) {
  return *index.templates()->Get(index.variants()->Get(variant)->template_index());
}

// Of the variant's steps, which are the same for every problem; its regions come behind them.
int64_t StepsBytes(const fb::Index& index, uint32_t variant) {
  const uint32_t kernels = index.variants()->Get(variant)->kernels();
  int64_t total = 0;
  for (uint32_t i = 0; i < Count(TemplateOf(index, variant).steps()); ++i) {
    total += StepWorkspace(*index.kernels()->Get(kernels + i));
  }
  return total;
}

}  // namespace

Result<int64_t> WorkspaceBytes(const Bundle& bundle, const Problem& problem, uint32_t variant,
                               int64_t alignment) {
  KB_RETURN_IF_ERROR(bundle.rep().CheckVariant(variant));
  const fb::Index& index = IndexOf(bundle);
  int64_t total = StepsBytes(index, variant);
  const auto* regions = TemplateOf(index, variant).regions();
  if (Count(regions) == 0) return total;
  EvalContext context;
  context.bundle = &bundle;
  context.problem = &problem;
  context.alignment = alignment;
  const LetValues lets = EvaluateLets(context, variant);
  context.tunables = Tunables(bundle, variant);
  context.lets = lets.view();
  context.let_errors = lets.errors;
  for (uint32_t i = 0; i < regions->size(); ++i) {
    const fb::Region& region = *regions->Get(i);
    const std::string_view text = region.text() ? region.text()->string_view() : "";
    const Slot bytes = RunProgram(context, *region.bytes());
    if (!bytes.ok() || bytes.value < 0) {
      return OutOfRange(fmt::format("workspace region '{}' of {}: {}", region.name()->string_view(),
                                    bundle.VariantId(variant),
                                    bytes.ok() ? fmt::format("`{}` is {}", text, bytes.value)
                                               : DescribeEvalError(context, bytes.error, text)));
    }
    int64_t end;
    constexpr int64_t kStep = kWorkspaceAlignment;
    if (__builtin_add_overflow(total, bytes.value, &end) || end > INT64_MAX - kStep) {
      return OutOfRange(
          fmt::format("the workspace of {} overflows 64 bits", bundle.VariantId(variant)));
    }
    total = (end + kStep - 1) / kStep * kStep;
  }
  return total;
}

// Of the variants that may be legal, not of those that would be chosen: what is chosen depends on
// the policy, the device's name and what the caller promises later. Of 307 listed problems of the
// kernels here both are the same for all but 3, where 4 MiB are reserved instead of 1.
Result<int64_t> MaxWorkspaceBytes(const Bundle& bundle, const Problem& problem, Device::Kind kind) {
  const fb::Index& index = IndexOf(bundle);
  const Device device{.kind = kind};
  int64_t largest = -1;
  Status unsized;  // of a variant that could not be launched either
  for (uint16_t target = 0; target < Count(index.targets()); ++target) {
    const auto of = static_cast<TargetKind>(index.targets()->Get(target)->kind());
    if ((of == TargetKind::kHost) != (kind == Device::Kind::kHost)) continue;
    KB_RETURN_IF_ERROR(bundle.rep().CheckVariants(problem.op, target, problem.types));
    const VariantRange range = VariantsOf(index, problem.op, target, problem.types);
    for (const int64_t alignment : kAlignments) {
      const SelectOptions options{.alignment = alignment, .policy = {}};
      CandidateCheck check(bundle, problem, device, options);
      for (uint32_t variant = range.first; variant < range.end; ++variant) {
        // Nearly all: whether it is legal makes no difference, and takes long to find out.
        if (Count(TemplateOf(index, variant).regions()) == 0 &&
            StepsBytes(index, variant) <= largest)
          continue;
        if (!check.WhenHolds(variant)) continue;
        const Result<int64_t> bytes = WorkspaceBytes(bundle, problem, variant, alignment);
        if (bytes.ok()) largest = std::max(largest, *bytes);
        if (!bytes.ok()) unsized = bytes.status();
      }
    }
  }
  if (largest >= 0) return largest;
  KB_RETURN_IF_ERROR(std::move(unsized));
  return NotFound(fmt::format(
      "sizing the workspace of {}: bundle '{}' has no legal variant of it for any {} target",
      problem.ToString(), bundle.path(), kind == Device::Kind::kHost ? "host" : "CUDA"));
}

}  // namespace kbundle
