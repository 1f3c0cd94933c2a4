// Workspace sizes: what a variant's regions take together.
#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "kbundle/select.h"
#include "loader/open/variant_rows.h"
#include "loader/select/candidates.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

// Every class a plan may be asked for: bytes that all addresses are a multiple of.
constexpr int64_t kAlignments[] = {16, 8, 4, 2, 1};

// The names by which Select may answer differently: of each device that problems were tuned on, and
// of none, for which the rows of a single device stand in the same order.
std::vector<std::string> TunedNames(const fb::Index& index) {
  std::vector<std::string> names = {""};
  for (uint32_t i = 0; Count(index.tuned_devices()) > 1 && i < Count(index.tuned_devices()); ++i) {
    names.push_back(index.tuned_devices()->Get(i)->str());
  }
  return names;
}

// A device for every way in which the bundle's targets may fit one, by each of these names.
std::vector<Device> DevicesOf(const fb::Index& index, Device::Kind kind) {
  std::vector<Device> devices;
  const auto add = [&, names = TunedNames(index)](int major, int minor) {
    for (const std::string& name : names) devices.push_back({kind, major, minor, 1, name});
  };
  for (uint32_t i = 0; i < Count(index.targets()); ++i) {
    const fb::Target& row = *index.targets()->Get(i);
    const auto of = static_cast<TargetKind>(row.kind());
    if ((of == TargetKind::kHost) != (kind == Device::Kind::kHost)) continue;
    add(of == TargetKind::kCudaPortable ? INT_MAX : row.major(), row.minor());
    // The next minor runs code for a family or for all 8.x, but no code for this minor alone.
    if (of == TargetKind::kCuda && row.feature() != 'a') add(row.major(), row.minor() + 1);
  }
  return devices;
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
  SelectOptions options;
  options.policy = Policy::Global().snapshot();
  options.policy.strict = false;  // which devices conformance ran on does not change sizes
  int64_t largest = -1;
  for (const Device& device : DevicesOf(bundle.index(), kind)) {
    for (int64_t alignment : kAlignments) {
      options.alignment = alignment;
      for (const Selected& one : SelectReachable(bundle, problem, device, options)) {
        KB_ASSIGN_OR_RETURN(const int64_t bytes,
                            WorkspaceBytes(bundle, problem, one.variant, alignment));
        largest = std::max(largest, bytes);
      }
    }
  }
  if (largest >= 0) return largest;
  return NotFound(fmt::format(
      "sizing the workspace of {}: bundle '{}' has no legal variant of it for any {} target",
      problem.ToString(), bundle.path(), kind == Device::Kind::kHost ? "host" : "CUDA"));
}

}  // namespace kbundle
