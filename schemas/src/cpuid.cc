// In a virtual machine the instruction leaves for the host, 7 us on one of them, and the compiler's
// helpers take two for each leaf: more, for what a first use asks, than the pages of a small op.
// The C library has asked when the process began, and tells it from glibc 2.33 on.
#include "kbundle/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <dlfcn.h>
#endif

namespace kbundle {

#if defined(__x86_64__)

namespace {

// glibc's struct cpuid_feature.
struct Leaf {
  CpuidRegisters said, usable;
};
using LeafOf = const Leaf* (*)(unsigned index);

LeafOf FindLeafOf() {
  return reinterpret_cast<LeafOf>(::dlsym(RTLD_DEFAULT, "__x86_get_cpuid_feature_leaf"));
}

// glibc's numbers, of <bits/platform/x86.h>; -1: none that we know.
int IndexOf(unsigned leaf) {
  switch (leaf) {
    case 1:
      return 0;
    case 7:
      return 1;
    case 0x80000001:
      return 2;
    default:
      return -1;
  }
}

}  // namespace

CpuidRegisters Cpuid(unsigned leaf) {
  static const LeafOf leaf_of = FindLeafOf();
  const int index = IndexOf(leaf);
  if (leaf_of != nullptr && index >= 0) return leaf_of(static_cast<unsigned>(index))->said;
  CpuidRegisters r;
  (void)__get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

#else

CpuidRegisters Cpuid(unsigned) { return {}; }

#endif

}  // namespace kbundle
