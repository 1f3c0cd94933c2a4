// Loaded by name and never linked: an image may lack the library, or have an older one. Only the
// two functions without which there is no device are wanted; each other that is missing leaves one
// field of the state unsaid.
#include "builder/device/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <vector>

namespace kbundle::builder {
namespace {

// As nvml.h has them, which not every toolkit installation includes.
using NvmlDevice = void*;
struct NvmlProcess {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance, compute_instance;
};
constexpr int kSuccess = 0, kInsufficientSize = 7;
constexpr unsigned int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;

}  // namespace

struct Nvml::Functions {
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*driver_version)(char*, unsigned int) = nullptr;
  int (*clock)(NvmlDevice, unsigned int, unsigned int*) = nullptr;
  int (*power_state)(NvmlDevice, int*) = nullptr;
  int (*temperature)(NvmlDevice, unsigned int, unsigned int*) = nullptr;
  int (*power)(NvmlDevice, unsigned int*) = nullptr;
  int (*throttle)(NvmlDevice, unsigned long long*) = nullptr;
  int (*processes)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;
};

std::unique_ptr<Nvml> Nvml::Open(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  auto functions = std::make_shared<Functions>();
  const auto find = [&](auto& member, const char* name) {
    member = reinterpret_cast<std::decay_t<decltype(member)>>(dlsym(library, name));
    return member != nullptr;
  };
  if (!find(functions->init, "nvmlInit_v2") ||
      !find(functions->by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2")) {
    return nullptr;
  }
  find(functions->driver_version, "nvmlSystemGetDriverVersion");
  find(functions->clock, "nvmlDeviceGetClockInfo");
  find(functions->power_state, "nvmlDeviceGetPerformanceState");
  find(functions->temperature, "nvmlDeviceGetTemperature");
  find(functions->power, "nvmlDeviceGetPowerUsage");
  find(functions->throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(functions->processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  NvmlDevice device = nullptr;
  if (functions->init() != kSuccess ||
      functions->by_bus_id(pci_bus_id.c_str(), &device) != kSuccess) {
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions), device));
}

std::string Nvml::DriverVersion() const {
  char text[96] = "";
  if (functions_->driver_version != nullptr) functions_->driver_version(text, sizeof text);
  return text;
}

nlohmann::json Nvml::State() const {
  const Functions& nvml = *functions_;
  nlohmann::json state = nlohmann::json::object();
  unsigned int number = 0;
  int power_state = 0;
  unsigned long long reasons = 0;
  const auto clock = [&](const char* name, unsigned int which) {
    if (nvml.clock != nullptr && nvml.clock(device_, which, &number) == kSuccess) {
      state[name] = number;
    }
  };
  clock("sm_mhz", kClockSm);
  clock("memory_mhz", kClockMemory);
  if (nvml.power_state != nullptr && nvml.power_state(device_, &power_state) == kSuccess) {
    state["power_state"] = "P" + std::to_string(power_state);
  }
  if (nvml.temperature != nullptr &&
      nvml.temperature(device_, kTemperatureGpu, &number) == kSuccess) {
    state["temperature_c"] = number;
  }
  if (nvml.power != nullptr && nvml.power(device_, &number) == kSuccess) {
    state["power_w"] = number / 1000;
  }
  if (nvml.throttle != nullptr && nvml.throttle(device_, &reasons) == kSuccess) {
    state["throttle"] = reasons;
  }
  std::vector<NvmlProcess> processes(64);
  auto count = static_cast<unsigned int>(processes.size());
  if (nvml.processes != nullptr) {
    const int result = nvml.processes(device_, &count, processes.data());
    // Ours is among them, under a number that a container may not know.
    if (result == kSuccess) state["other_processes"] = count > 0 ? count - 1 : 0;
    if (result == kInsufficientSize) state["other_processes"] = count;
  }
  return state;
}

}  // namespace kbundle::builder
