// What the instruction CPUID says of this processor, without a trip to the host of a virtual
// machine where that can be had.
#ifndef KBUNDLE_CPUID_H_
#define KBUNDLE_CPUID_H_

namespace kbundle {

struct CpuidRegisters {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Of leaf 1, 7 or 0x80000001, its subleaf 0; all 0 where the processor has no such leaf, and on
// processors that have no CPUID. From any thread.
CpuidRegisters Cpuid(unsigned leaf);

}  // namespace kbundle

#endif  // KBUNDLE_CPUID_H_
