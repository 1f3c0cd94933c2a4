// Which level this CPU and its operating system support: of x86-64 the psABI's 2 to 4; of Arm the
// one that there is.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string>

#include "kbundle/cpuid.h"
#include "kbundle/target.h"

namespace kbundle {
namespace {

#if defined(__x86_64__)
// What the operating system saves at a context switch: without it, wide registers are unusable.
unsigned SavedState() {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool Has(unsigned word, unsigned bits) { return (word & bits) == bits; }

int CpuLevel() {
  const CpuidRegisters one = Cpuid(1), seven = Cpuid(7), extended = Cpuid(0x80000001);
  constexpr unsigned kLevel2 =
      bit_SSE3 | bit_SSSE3 | bit_CMPXCHG16B | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT;
  if (!Has(one.ecx, kLevel2) || !Has(extended.ecx, bit_LAHF_LM)) return 1;
  if (!Has(one.ecx, bit_OSXSAVE)) return 2;
  const unsigned saved = SavedState();
  constexpr unsigned kYmm = 0x6, kZmm = 0xe6;
  if (!Has(saved, kYmm) || !Has(one.ecx, bit_AVX | bit_F16C | bit_FMA | bit_MOVBE) ||
      !Has(seven.ebx, bit_AVX2 | bit_BMI | bit_BMI2) || !Has(extended.ecx, bit_LZCNT)) {
    return 2;
  }
  constexpr unsigned kLevel4 =
      bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
  return Has(saved, kZmm) && Has(seven.ebx, kLevel4) ? 4 : 3;
}
#elif defined(__aarch64__)
int CpuLevel() { return kArmLevel; }
#else
#error "kbundle runs on x86-64 and on AArch64"
#endif

Device MakeHostDevice() {
  int level = CpuLevel();
  if (const char* wish = std::getenv("KBUNDLE_CPU_ISA")) {
    const Result<Target> target = Target::Parse(wish);
    if (target.ok() && target->kind == TargetKind::kHost &&
        target->IsArm() == (level >= kArmLevel) && target->major < level) {
      level = target->major;
    }
  }
  Device device;
  device.kind = Device::Kind::kHost;
  device.major = level;
  device.name = device.ToString();
  return device;
}

}  // namespace

Device HostDevice() {
  static const Device* device = new Device(MakeHostDevice());
  return *device;
}

}  // namespace kbundle
