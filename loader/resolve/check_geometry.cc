// Limits are compared before anything is loaded, with the value and the limit in the message.
#include "loader/resolve/check_geometry.h"

#include <fmt/format.h>

namespace kbundle {
namespace {

Status OverLimit(const std::string& what, int64_t value, int64_t limit, const Device& device) {
  return FailedPrecondition(
      fmt::format("{} is {}, {} allows at most {}", what, value, device.ToString(), limit));
}

Status CheckExtent(const char* name, const Extent& extent, const Extent& limit,
                   const Device& device) {
  for (size_t i = 0; i < extent.size(); ++i) {
    const std::string what = fmt::format("{}.{}", name, "xyz"[i]);
    if (extent[i] < 1)
      return FailedPrecondition(fmt::format("{} is {}, must be at least 1", what, extent[i]));
    if (extent[i] > limit[i]) return OverLimit(what, extent[i], limit[i], device);
  }
  return Status();
}

Status CheckCluster(const ResolvedStep& step, const LaunchLimits& limits, const Device& device) {
  const Extent& cluster = step.cluster;
  const Extent limit{kMaxCluster, kMaxCluster, kMaxCluster};
  KB_RETURN_IF_ERROR(CheckExtent("cluster", cluster, limit, device));
  const int64_t size = cluster[0] * cluster[1] * cluster[2];
  if (size == 1) return Status();
  if (!limits.clusters) return OverLimit("blocks in a cluster", size, 1, device);
  if (size > kMaxCluster) return OverLimit("blocks in a cluster", size, kMaxCluster, device);
  for (size_t i = 0; i < cluster.size(); ++i) {
    if (step.grid[i] % cluster[i] == 0) continue;
    return FailedPrecondition(fmt::format("grid.{} is {}, not a multiple of the cluster's {}",
                                          "xyz"[i], step.grid[i], cluster[i]));
  }
  return Status();
}

}  // namespace

Status CheckGeometry(const ResolvedStep& step, const LaunchLimits& limits, const Device& device) {
  KB_RETURN_IF_ERROR(CheckExtent("grid", step.grid, limits.max_grid, device));
  KB_RETURN_IF_ERROR(CheckExtent("block", step.block, limits.max_block, device));
  const int64_t threads = step.block[0] * step.block[1] * step.block[2];
  if (threads > limits.max_threads)
    return OverLimit("threads of a block", threads, limits.max_threads, device);
  return CheckCluster(step, limits, device);
}

// CUDA C++ Programming Guide, technical specifications per compute capability: the same of all.
LaunchLimits LimitsOf(const Device& device) {
  constexpr int kFirstWithClusters = 9;
  return {{INT32_MAX, 65535, 65535}, {1024, 1024, 64}, 1024, device.major >= kFirstWithClusters};
}

Result<Resolution> ResolveToLaunch(const Bundle& bundle, const Problem& problem,
                                   const Device& device, uint32_t variant, int64_t alignment) {
  Result<Resolution> resolution = Resolve(bundle, problem, device, variant, alignment);
  if (!resolution.ok() || device.kind != Device::Kind::kCuda) return resolution;
  for (const ResolvedStep& step : resolution->steps) {
    if (step.kind != StepKind::kKernel) continue;
    Status status = CheckGeometry(step, LimitsOf(device), device);
    if (!status.ok()) return std::move(status).Annotate(fmt::format("step {}", step.number + 1));
  }
  return resolution;
}

}  // namespace kbundle
