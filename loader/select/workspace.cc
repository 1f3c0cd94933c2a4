// A framework reserves workspace before it knows device, policy and addresses, so the size asked
// for is the most that any variant takes which may come to be chosen. Alignment is what would
// make that dear: it is tried only where some rule or region asks for it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

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

// Whether legality or workspace may depend on what is promised of addresses: a let, a rule or a
// region asks for align().
bool AsksForAlignment(const fb::Index& index, const fb::Template& row) {
  const auto any = [&](const auto* rows, auto program) {
    for (uint32_t i = 0; i < Count(rows); ++i) {
      if (Uses(index, *program(*rows->Get(i)), Opcode::kAlign)) return true;
    }
    return false;
  };
  const auto of_rule = [](const fb::Rule& rule) { return rule.program(); };
  return any(row.lets(), of_rule) || any(row.when(), of_rule) ||
         any(row.regions(), [](const fb::Region& region) { return region.bytes(); });
}

// The variant may be used.
Result<int64_t> BytesOf(const Bundle& bundle, const Problem& problem, uint32_t variant,
                        int64_t alignment) {
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

// What the variants of one target and these dtypes take at most; -1: none is legal. Nearly all have
// no regions, and whether they are legal makes no difference: to find out takes long.
class Largest {
 public:
  Largest(const Bundle& bundle, const Problem& problem, const Device& device)
      : bundle_(bundle), index_(IndexOf(bundle)), problem_(problem), device_(device) {}

  void Add(uint32_t variant) {
    const fb::Template& row = TemplateOf(index_, variant);
    const int64_t steps = StepsBytes(index_, variant);
    for (size_t i = 0; i < std::size(kAlignments); ++i) {
      if (Count(row.regions()) == 0 && steps <= bytes_) return;
      if (i != 0 && !Asks(row)) return;
      if (!CheckOf(i).WhenHolds(variant)) continue;
      const Result<int64_t> bytes = BytesOf(bundle_, problem_, variant, kAlignments[i]);
      if (bytes.ok()) bytes_ = std::max(bytes_, *bytes);
      if (!bytes.ok()) unsized_ = bytes.status();
    }
  }

  int64_t bytes() const { return bytes_; }
  const Status& unsized() const { return unsized_; }  // of one that could not be launched either

 private:
  // For alignment: the same of all points of a variant, which follow each other.
  bool Asks(const fb::Template& row) {
    if (asked_ != &row) asks_ = AsksForAlignment(index_, row);
    asked_ = &row;
    return asks_;
  }
  // It remembers which rules hold for all points of a variant.
  CandidateCheck& CheckOf(size_t alignment) {
    if (!checks_[alignment]) {
      options_[alignment].alignment = kAlignments[alignment];
      checks_[alignment].emplace(bundle_, problem_, device_, options_[alignment]);
    }
    return *checks_[alignment];
  }

  const Bundle& bundle_;
  const fb::Index& index_;
  const Problem& problem_;
  const Device& device_;
  std::array<SelectOptions, std::size(kAlignments)> options_;
  std::array<std::optional<CandidateCheck>, std::size(kAlignments)> checks_;
  const fb::Template* asked_ = nullptr;
  bool asks_ = false;
  int64_t bytes_ = -1;
  Status unsized_;
};

}  // namespace

Result<int64_t> WorkspaceBytes(const Bundle& bundle, const Problem& problem, uint32_t variant,
                               int64_t alignment) {
  KB_RETURN_IF_ERROR(bundle.rep().CheckVariant(variant));
  return BytesOf(bundle, problem, variant, alignment);
}

// Of the variants that may be legal, not of those that would be chosen: what is chosen depends on
// the policy, the device's name and what the caller promises later. Of 307 listed problems of the
// kernels here both are the same for all but 3, where 4 MiB are reserved instead of 1.
Result<int64_t> MaxWorkspaceBytes(const Bundle& bundle, const Problem& problem, Device::Kind kind) {
  const fb::Index& index = IndexOf(bundle);
  const Device device{.kind = kind};
  Largest largest(bundle, problem, device);
  for (uint16_t target = 0; target < Count(index.targets()); ++target) {
    const auto of = static_cast<TargetKind>(index.targets()->Get(target)->kind());
    if ((of == TargetKind::kHost) != (kind == Device::Kind::kHost)) continue;
    KB_RETURN_IF_ERROR(bundle.rep().CheckChoices(problem.op, target, problem.types));
    const VariantRange range = VariantsOf(index, problem.op, target, problem.types);
    for (uint32_t variant = range.first; variant < range.end; ++variant) largest.Add(variant);
  }
  if (largest.bytes() >= 0) return largest.bytes();
  KB_RETURN_IF_ERROR(largest.unsized());
  return NotFound(fmt::format(
      "sizing the workspace of {}: bundle '{}' has no legal variant of it for any {} target",
      problem.ToString(), bundle.path(), kind == Device::Kind::kHost ? "host" : "CUDA"));
}

}  // namespace kbundle
