// A GPU as plans see it: what Select needs to know, and the limits that launches are checked
// against.
#ifndef KBUNDLE_LOADER_CUDA_DEVICE_H_
#define KBUNDLE_LOADER_CUDA_DEVICE_H_

#include <cstdint>

#include "kbundle/driver_api.h"
#include "kbundle/status.h"
#include "kbundle/target.h"
#include "loader/resolve/check_geometry.h"

namespace kbundle {

struct CudaDevice {
  CUdevice ordinal = 0;
  Device device;
  LaunchLimits limits;
  int64_t default_shared = 0;  // bytes of a block without asking
  int64_t max_shared = 0;      // bytes of a block, asked for by function attribute
};

// Portable is what every device with clusters runs; more needs a function attribute.
inline constexpr int64_t kPortableCluster = 8;

Result<CudaDevice> QueryDevice(const DriverApi& driver, CUdevice ordinal);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CUDA_DEVICE_H_
