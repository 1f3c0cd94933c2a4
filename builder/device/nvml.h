// What NVML says about a GPU: clocks, power state, temperature, who else uses it.
//
// libnvidia-ml is opened at run time; a machine without it has no Nvml. Read-only: no setting of
// the GPU is ever changed. One thread.
#ifndef KBUNDLE_BUILDER_DEVICE_NVML_H_
#define KBUNDLE_BUILDER_DEVICE_NVML_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace kbundle::builder {

class Nvml {
 public:
  // Of the GPU at this PCI bus id ("00000000:18:00.0"); null where NVML cannot answer.
  static std::unique_ptr<Nvml> Open(const std::string& pci_bus_id);

  std::string DriverVersion() const;
  // Those known of: sm_mhz, memory_mhz, power_state, temperature_c, power_w, throttle,
  // other_processes.
  nlohmann::json State() const;

 private:
  struct Functions;
  explicit Nvml(std::shared_ptr<const Functions> functions, void* device)
      : functions_(std::move(functions)), device_(device) {}
  std::shared_ptr<const Functions> functions_;
  void* device_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_DEVICE_NVML_H_
