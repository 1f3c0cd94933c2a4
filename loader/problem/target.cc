// Names of targets, and which devices run them: the four rules of FORMAT.md, section 8a.
#include "kbundle/target.h"

#include <fmt/format.h>

#include <charconv>

namespace kbundle {
namespace {

constexpr std::string_view kHostPrefix = "x86-64-v";
constexpr std::string_view kArm = "armv8-a";
constexpr std::string_view kCudaPrefix = "sm_";
constexpr int kPortableMajor = 8;  // the lowest capability that portable PTX is made for by default
constexpr int kAssumedSmCount = 132;

Status BadTarget(std::string_view name) {
  return InvalidArgument(fmt::format(
      "'{}' is no target: write sm_80, sm_90a, sm_100f, portable, x86-64-v2, -v3, -v4, or armv8-a",
      name));
}

std::string HostName(int level) {
  return level >= kArmLevel ? std::string(kArm) : fmt::format("{}{}", kHostPrefix, level);
}

}  // namespace

std::string Device::ToString() const {
  if (kind == Kind::kCuda) return fmt::format("{}{}{}", kCudaPrefix, major, minor);
  return HostName(major);
}

Result<Target> Target::Parse(std::string_view name) {
  if (name == "portable") return Target{TargetKind::kCudaPortable, kPortableMajor, 0, 0};
  if (name.starts_with(kHostPrefix)) {
    const std::string_view level = name.substr(kHostPrefix.size());
    if (level.size() != 1 || level[0] < '1' || level[0] > '4') return BadTarget(name);
    return Target{TargetKind::kHost, static_cast<uint8_t>(level[0] - '0'), 0, 0};
  }
  if (name == kArm) return Target{TargetKind::kHost, kArmLevel, 0, 0};
  if (!name.starts_with(kCudaPrefix)) return BadTarget(name);
  std::string_view digits = name.substr(kCudaPrefix.size());
  char feature = 0;
  if (digits.ends_with('a') || digits.ends_with('f')) {
    feature = digits.back();
    digits.remove_suffix(1);
  }
  unsigned number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.size() < 2 ||
      digits.size() > 3 || digits[0] == '0') {
    return BadTarget(name);
  }
  return Target{TargetKind::kCuda, static_cast<uint8_t>(number / 10),
                static_cast<uint8_t>(number % 10), feature};
}

std::string Target::ToString() const {
  switch (kind) {
    case TargetKind::kCudaPortable:
      return "portable";
    case TargetKind::kHost:
      return HostName(major);
    case TargetKind::kCuda:
      break;
  }
  std::string name = fmt::format("{}{}{}", kCudaPrefix, major, minor);
  if (feature != 0) name += feature;
  return name;
}

int Target::Fit(const Device& device) const {
  if ((kind == TargetKind::kHost) != (device.kind == Device::Kind::kHost)) return 0;
  switch (kind) {
    case TargetKind::kHost:
      if (IsArm() != (device.major >= kArmLevel)) return 0;
      return device.major >= major ? major : 0;
    case TargetKind::kCudaPortable:
      return device.major > major || (device.major == major && device.minor >= minor) ? 1 : 0;
    case TargetKind::kCuda:
      break;
  }
  if (device.major != major) return 0;
  if (feature == 'a') return device.minor == minor ? 4 : 0;
  if (device.minor < minor) return 0;
  return feature == 'f' ? 3 : 2;
}

Result<Device> DeviceFromTargetName(std::string_view name) {
  if (name == "host") return HostDevice();
  KB_ASSIGN_OR_RETURN(const Target target, Target::Parse(name));
  if (target.kind == TargetKind::kCudaPortable) {
    return InvalidArgument("'portable' names no device: write a GPU such as sm_90");
  }
  Device device;
  device.major = target.major;
  device.minor = target.minor;
  device.kind = target.kind == TargetKind::kHost ? Device::Kind::kHost : Device::Kind::kCuda;
  const bool cuda = device.kind == Device::Kind::kCuda;
  if (cuda) device.sm_count = kAssumedSmCount;
  device.name = cuda ? "" : device.ToString();
  return device;
}

}  // namespace kbundle
