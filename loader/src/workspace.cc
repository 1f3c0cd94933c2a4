// Workspace sizes: what a variant's regions take together.
#include <fmt/format.h>

#include <algorithm>

#include "candidates.h"
#include "kbundle/select.h"
#include "kbundle/tuned.h"
#include "variant_rows.h"
#include "verify.h"

namespace kbundle {
namespace {

// Every class a plan may be asked for: bytes that all addresses are a multiple of.
constexpr int64_t kAlignments[] = {16, 8, 4, 2, 1};

bool MayBePassedOver(const fb::Index& index, uint32_t variant) {
  const uint32_t row = index.variants()->Get(variant)->template_index();
  const auto provider = static_cast<Provider>(index.templates()->Get(row)->provider());
  return provider == Provider::kCudnn || provider == Provider::kCublasLt;
}

// The winners of tuned problems that may decide, whatever the device is called: of those of each
// device's name the nearest, and the next ones while a winner may be passed over.
std::vector<uint32_t> TunedWinners(const Bundle& bundle, const Problem& problem,
                                   const RankedTarget& target, CandidateCheck& check) {
  const fb::Index& index = bundle.index();
  std::vector<uint32_t> winners, settled;  // devices
  for (const NearestTuned& nearest : TunedByDistance(bundle, problem, target.target, Device())) {
    const fb::Tuned& row = *index.tuned()->Get(static_cast<uint32_t>(nearest.row));
    if (std::find(settled.begin(), settled.end(), row.device()) != settled.end()) continue;
    const bool may_win = index.variants()->Get(row.winner())->types() == problem.types &&
                         check.Check(row.winner(), target, false).legal;
    if (may_win) winners.push_back(row.winner());
    if (!MayBePassedOver(index, row.winner())) settled.push_back(row.device());
  }
  return winners;
}

// Of the variants that may be chosen where `target` is the one that fits best: winners of tuned
// problems, the first legal one in manifest order that needs no library, those before it, and
// forced ones.
Result<int64_t> LargestOfTarget(const Bundle& bundle, const Problem& problem,
                                const RankedTarget& target, const Device& device,
                                const SelectOptions& options, bool* any) {
  const fb::Entry* entry = FindEntry(bundle.index(), problem.op, target.target, problem.types);
  CandidateCheck check(bundle, problem, device, options);
  std::vector<uint32_t> chosen = TunedWinners(bundle, problem, target, check);
  for (const std::string& id : options.policy.forced) {
    for (uint32_t variant : check.MeantBy(id)) {
      const bool here = bundle.index().variants()->Get(variant)->target() == target.target;
      if (here && check.Check(variant, target, false).legal) chosen.push_back(variant);
    }
  }
  for (uint32_t i = 0; entry != nullptr && i < entry->count(); ++i) {
    if (!check.Check(entry->first() + i, target, false).legal) continue;
    chosen.push_back(entry->first() + i);
    // That a library is missing, or has another version, shows only where the plan is made.
    if (!MayBePassedOver(bundle.index(), entry->first() + i)) break;
  }
  int64_t largest = 0;
  for (uint32_t variant : chosen) {
    KB_ASSIGN_OR_RETURN(const int64_t bytes,
                        WorkspaceBytes(bundle, problem, variant, options.alignment));
    largest = std::max(largest, bytes);
    *any = true;
  }
  return largest;
}

}  // namespace

Result<int64_t> WorkspaceBytes(const Bundle& bundle, const Problem& problem, uint32_t variant,
                               int64_t alignment) {
  const fb::Index& index = bundle.index();
  const fb::Variant& row = *index.variants()->Get(variant);
  const fb::Template& shape = *index.templates()->Get(row.template_index());
  int64_t total = 0;
  for (uint32_t i = 0; i < Count(shape.steps()); ++i) {
    total += PlanWorkspace(*index.kernels()->Get(row.kernels() + i));
  }
  const auto* regions = shape.regions();
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

Result<int64_t> MaxWorkspaceBytes(const Bundle& bundle, const Problem& problem, Device::Kind kind) {
  const fb::Index& index = bundle.index();
  SelectOptions options;
  options.policy = Policy::Global().snapshot();
  options.policy.strict = false;  // which devices conformance ran on does not change sizes
  int64_t largest = 0;
  bool any = false;
  for (uint32_t i = 0; i < Count(index.targets()); ++i) {
    const fb::Target& row = *index.targets()->Get(i);
    const auto target_kind = static_cast<TargetKind>(row.kind());
    if ((target_kind == TargetKind::kHost) != (kind == Device::Kind::kHost)) continue;
    Device device;
    device.kind = kind;
    device.major = row.major();
    device.minor = row.minor();
    const RankedTarget target{static_cast<uint16_t>(i), 1, 0,
                              target_kind == TargetKind::kCudaPortable};
    for (int64_t alignment : kAlignments) {
      options.alignment = alignment;
      KB_ASSIGN_OR_RETURN(const int64_t bytes,
                          LargestOfTarget(bundle, problem, target, device, options, &any));
      largest = std::max(largest, bytes);
    }
  }
  if (any) return largest;
  return NotFound(fmt::format(
      "sizing the workspace of {}: bundle '{}' has no legal variant of it for any {} target",
      problem.ToString(), bundle.path(), kind == Device::Kind::kHost ? "host" : "CUDA"));
}

}  // namespace kbundle
