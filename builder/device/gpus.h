// The GPUs that this process sees, asked of the driver without making a context on any.
#ifndef KBUNDLE_BUILDER_DEVICE_GPUS_H_
#define KBUNDLE_BUILDER_DEVICE_GPUS_H_

#include <cuda.h>

#include <string>

#include "kbundle/status.h"

namespace kbundle::builder {

// How many there are, after starting the driver. What DriverApi::Get answers where there is none,
// kUnavailable or kInternal of a driver that fails. Any thread.
Result<int> CountGpus();

// GPU `number`, counted from 0 as CUDA counts. kUnavailable: there are not so many; the message
// says what was being done to it (`doing`: "asking", "describing") and how many there are.
Result<CUdevice> FindGpu(int number, const std::string& doing);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_DEVICE_GPUS_H_
