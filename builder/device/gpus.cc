// What the driver says of a number outside its range is an error code; what a user can do about it
// is a number within.
#include "builder/device/gpus.h"

#include <fmt/format.h>

#include "kbundle/driver_api.h"

namespace kbundle::builder {
namespace {

std::string Advice(int count) {
  if (count == 0) return "none";
  return (count == 1 ? "one, number 0" : fmt::format("{}, numbers 0 to {}", count, count - 1)) +
         "; choose one with --device";
}

}  // namespace

Result<int> CountGpus() {
  KB_ASSIGN_OR_RETURN(const DriverApi* driver, DriverApi::Get());
  KB_RETURN_IF_ERROR(driver->Check(driver->Init(0), "starting the NVIDIA driver"));
  int count = 0;
  KB_RETURN_IF_ERROR(driver->Check(driver->DeviceGetCount(&count), "counting GPUs"));
  return count;
}

Result<CUdevice> FindGpu(int number, const std::string& doing) {
  KB_ASSIGN_OR_RETURN(const int count, CountGpus());
  if (number < 0 || number >= count) {
    return Unavailable(
        fmt::format("{} GPU {}: this process sees {}", doing, number, Advice(count)));
  }
  KB_ASSIGN_OR_RETURN(const DriverApi* driver, DriverApi::Get());
  CUdevice device = 0;
  KB_RETURN_IF_ERROR(
      driver->Check(driver->DeviceGet(&device, number), fmt::format("opening GPU {}", number)));
  return device;
}

}  // namespace kbundle::builder
