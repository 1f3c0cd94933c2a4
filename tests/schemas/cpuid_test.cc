// Promise: what the C library remembers of the processor is what the processor says.
#include "kbundle/cpuid.h"

#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <cpuid.h>

namespace kbundle {
namespace {

TEST(Cpuid, SaysWhatTheInstructionSays) {
  // Leaf 1 has the number of the core in ebx, and in ecx whether the system saves wide registers.
  constexpr unsigned kOsxsave = 1u << 27;
  for (const unsigned leaf : {1u, 7u, 0x80000001u}) {
    CpuidRegisters r;
    ASSERT_NE(__get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx), 0);
    const CpuidRegisters found = Cpuid(leaf);
    EXPECT_EQ(found.ecx & ~kOsxsave, r.ecx & ~kOsxsave) << leaf;
    EXPECT_EQ(found.edx, r.edx) << leaf;
    if (leaf == 1) continue;
    EXPECT_EQ(found.ebx, r.ebx) << leaf;
  }
  EXPECT_NE(Cpuid(1).edx & 1u << 26, 0u);  // SSE2, which all of x86-64 have
}

}  // namespace
}  // namespace kbundle
#endif
