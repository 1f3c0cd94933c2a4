// What a GPU is, asked of the driver once.
#include "loader/cuda/cuda_device.h"

#include <fmt/format.h>

namespace kbundle {

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
  result.limits.max_threads = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  result.limits.max_block = {read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                             read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                             read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)};
  result.limits.max_grid = {read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                            read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                            read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)};
  result.default_shared = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  result.max_shared = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  result.limits.clusters = read(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  if (!status.ok()) return status;
  char name[256] = {};
  KB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetName(name, sizeof(name) - 1, ordinal),
                                  fmt::format("reading the name of CUDA device {}", ordinal)));
  result.device.name = name;
  return result;
}

}  // namespace kbundle
