// A launch does not ask whose its stream is: the driver refuses one of another context by itself,
// as an invalid handle. Which of the handles it means, and what to do, is found out here.
#include "loader/cuda/stream_context.h"

#include <fmt/format.h>

#include <utility>

namespace kbundle {
namespace {

std::string CurrentDeviceName(const DriverApi& driver) {
  CUdevice device = 0;
  if (driver.CtxGetDevice(&device) != CUDA_SUCCESS) return "an unknown CUDA device";
  char name[256] = {};
  if (driver.DeviceGetName(name, sizeof(name) - 1, device) != CUDA_SUCCESS) name[0] = '\0';
  return fmt::format("CUDA device {}{}", device, *name ? fmt::format(" ({})", name) : "");
}

// The driver says it of the current context only.
std::string DeviceNameOf(const DriverApi& driver, CUcontext context) {
  CUcontext before = nullptr;
  if (driver.CtxGetCurrent(&before) != CUDA_SUCCESS) return "an unknown CUDA device";
  if (driver.CtxSetCurrent(context) != CUDA_SUCCESS) return "an unknown CUDA device";
  std::string name = CurrentDeviceName(driver);
  (void)driver.CtxSetCurrent(before);
  return name;
}

}  // namespace

Status ExplainStream(const DriverApi& driver, CUstream stream, uint64_t plan_context,
                     Status failed) {
  CUcontext context = nullptr;
  unsigned long long id = 0;  // NOLINT: the driver's type
  if (driver.StreamGetCtx(stream, &context) != CUDA_SUCCESS || context == nullptr ||
      driver.CtxGetId(context, &id) != CUDA_SUCCESS || id == plan_context) {
    return failed;
  }
  const std::string plans = CurrentDeviceName(driver), streams = DeviceNameOf(driver, context);
  const std::string found =
      plans == streams
          ? fmt::format("the stream is of another context of {} than the plan", plans)
          : fmt::format("the stream is of {}, the plan was made on {}", streams, plans);
  return FailedPrecondition(
      fmt::format("{}: give a stream that was made while the plan's context was current, or make a "
                  "plan while the stream's is; {}",
                  found, failed.message()));
}

}  // namespace kbundle
