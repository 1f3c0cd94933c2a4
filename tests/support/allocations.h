// The allocations of a test's thread: counted, and made to fail. Linking this replaces operator new.
#ifndef KBUNDLE_TESTS_SUPPORT_ALLOCATIONS_H_
#define KBUNDLE_TESTS_SUPPORT_ALLOCATIONS_H_

#include <cstdint>

// The address sanitizer replaces the allocator itself. GCC and clang tell of it in two ways.
#if defined(__SANITIZE_ADDRESS__)
#define KB_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KB_ADDRESS_SANITIZER 1
#endif
#endif

namespace kbundle::testing {

#ifdef KB_ADDRESS_SANITIZER
inline constexpr bool kCountsAllocations = false;
#else
inline constexpr bool kCountsAllocations = true;
#endif

// Of this thread so far.
uint64_t Allocations();
// The n-th allocation of this thread from now (1 is the next) throws std::bad_alloc, once; 0: none.
void FailAllocation(uint64_t n);
// As FailAllocation, and every later one throws too, until it is called with 0.
void FailAllocationsFrom(uint64_t n);

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_ALLOCATIONS_H_
