// Target: what code runs on. Device: what a machine has.
#ifndef KBUNDLE_TARGET_H_
#define KBUNDLE_TARGET_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kbundle/format.h"
#include "kbundle/status.h"

namespace kbundle {

// Levels of CPUs below it are of x86-64, those from it on of Arm.
constexpr uint8_t kArmLevel = 8;

// What this machine has: a GPU's compute capability, or a CPU's level.
struct Device {
  enum class Kind : uint8_t { kCuda, kHost };
  Kind kind = Kind::kHost;
  int major = 0;  // compute capability, or level: 2, 3, 4 of x86-64, 8 of Arm
  int minor = 0;
  int64_t sm_count = 1;  // used by grids only
  // "NVIDIA H200", as conformance records it; "" stands for every GPU of this capability, when a
  // target is asked about and not a machine; host: the level's name.
  std::string name = {};

  std::string ToString() const;  // "sm_90", "x86-64-v4", "armv8-a"
};

// The CPU this process runs on, on x86-64 by CPUID; KBUNDLE_CPU_ISA=x86-64-v2|v3|v4 lowers it (read
// once; another value, or a higher level than the CPU has, changes nothing).
Device HostDevice();

// "sm_80", "sm_90a", "sm_100f", "x86-64-v3", "armv8-a", "portable".
struct Target {
  TargetKind kind = TargetKind::kHost;
  uint8_t major = 0;
  uint8_t minor = 0;
  char feature = 0;  // 'a' exactly this device, 'f' its SM family, 0 plain

  // "portable" parses as PTX for 8.0 and later; the index may say another lowest capability.
  static Result<Target> Parse(std::string_view name);
  std::string ToString() const;

  bool IsArm() const { return kind == TargetKind::kHost && major >= kArmLevel; }

  // 0 = cannot run; else how good: exact 4, SM family 3, plain 2, portable 1; host: the level.
  // Rules (design, section 6): sm_90a on exactly 9.0; sm_100f on 10.x, x >= 0; sm_80 on 8.x, x >=
  // 0.
  int Fit(const Device& device) const;
};

// A device to plan for, by a target's name: "sm_90a": a 9.0 GPU (132 SMs assumed), "host": this CPU
Result<Device> DeviceFromTargetName(std::string_view name);

}  // namespace kbundle

#endif  // KBUNDLE_TARGET_H_
