// The loader's own rule (Target::Fit), asked of this CPU or of what the measuring child said of its
// GPU.
#include "builder/tune/target.h"

#include <fmt/format.h>

#include <cstdlib>

namespace kbundle::builder {

Status CheckCpu(const Target& target) {
  if (target.Fit(HostDevice()) > 0) return Status();
  return FailedPrecondition(
      fmt::format("this CPU is {} and cannot run {}; --target host takes what fits",
                  HostDevice().ToString(), target.ToString()));
}

Status CheckGpu(const Target& target, const nlohmann::json& facts, int number) {
  Device device;
  device.kind = Device::Kind::kCuda;
  const std::string found = facts.value("target", "");
  if (found.starts_with("sm_")) {
    const int number = std::atoi(found.c_str() + 3);
    device.major = number / 10;
    device.minor = number % 10;
  }
  if (target.Fit(device) > 0) return Status();
  return FailedPrecondition(
      fmt::format("GPU {} is an {}, {}: it cannot run {}; use a GPU that can, or another --target",
                  number, facts.value("name", "unknown GPU"), found, target.ToString()));
}

}  // namespace kbundle::builder
