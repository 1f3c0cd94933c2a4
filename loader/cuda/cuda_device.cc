// What a GPU is, asked of the driver once, and whether it can launch a step: limits are compared
// before anything is loaded, with the value and the limit in the message.
#include "loader/cuda/cuda_device.h"

#include <fmt/format.h>

namespace kbundle {
namespace {

Status OverLimit(const std::string& what, int64_t value, int64_t limit, const CudaDevice& device) {
  return FailedPrecondition(
      fmt::format("{} is {}, {} allows at most {}", what, value, device.device.ToString(), limit));
}

Status CheckExtent(const char* name, const Extent& extent, const Extent& limit,
                   const CudaDevice& device) {
  for (size_t i = 0; i < extent.size(); ++i) {
    const std::string what = fmt::format("{}.{}", name, "xyz"[i]);
    if (extent[i] < 1)
      return FailedPrecondition(fmt::format("{} is {}, must be at least 1", what, extent[i]));
    if (extent[i] > limit[i]) return OverLimit(what, extent[i], limit[i], device);
  }
  return Status();
}

Status CheckCluster(const ResolvedStep& step, const CudaDevice& device) {
  const Extent& cluster = step.cluster;
  const Extent limit{kMaxCluster, kMaxCluster, kMaxCluster};
  KB_RETURN_IF_ERROR(CheckExtent("cluster", cluster, limit, device));
  const int64_t size = cluster[0] * cluster[1] * cluster[2];
  if (size == 1) return Status();
  if (!device.clusters) return OverLimit("blocks in a cluster", size, 1, device);
  if (size > kMaxCluster) return OverLimit("blocks in a cluster", size, kMaxCluster, device);
  for (size_t i = 0; i < cluster.size(); ++i) {
    if (step.grid[i] % cluster[i] == 0) continue;
    return FailedPrecondition(fmt::format("grid.{} is {}, not a multiple of the cluster's {}",
                                          "xyz"[i], step.grid[i], cluster[i]));
  }
  return Status();
}

}  // namespace

Result<CudaDevice> QueryDevice(const DriverApi& driver, CUdevice ordinal) {
  CudaDevice result;
  result.ordinal = ordinal;
  result.device.kind = Device::Kind::kCuda;
  Status status;
  auto read = [&](CUdevice_attribute attribute) -> int64_t {
    int value = 0;
    if (!status.ok()) return value;
    if (const CUresult got = driver.DeviceGetAttribute(&value, attribute, ordinal)) {
      status = driver.Check(got, fmt::format("reading attribute {} of CUDA device {}",
                                             static_cast<int>(attribute), ordinal));
    }
    return value;
  };
  result.device.major = static_cast<int>(read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  result.device.minor = static_cast<int>(read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  result.device.sm_count = read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  result.max_threads = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  result.max_block = {read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                      read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                      read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)};
  result.max_grid = {read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                     read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                     read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)};
  result.default_shared = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  result.max_shared = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  result.clusters = read(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  if (!status.ok()) return status;
  char name[256] = {};
  KB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetName(name, sizeof(name) - 1, ordinal),
                                  fmt::format("reading the name of CUDA device {}", ordinal)));
  result.device.name = name;
  return result;
}

Status CheckGeometry(const ResolvedStep& step, const CudaDevice& device) {
  KB_RETURN_IF_ERROR(CheckExtent("grid", step.grid, device.max_grid, device));
  KB_RETURN_IF_ERROR(CheckExtent("block", step.block, device.max_block, device));
  const int64_t threads = step.block[0] * step.block[1] * step.block[2];
  if (threads > device.max_threads)
    return OverLimit("threads of a block", threads, device.max_threads, device);
  return CheckCluster(step, device);
}

}  // namespace kbundle
