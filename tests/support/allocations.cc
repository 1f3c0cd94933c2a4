#include "support/allocations.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace kbundle::testing {
namespace {

thread_local uint64_t t_allocations = 0, t_fail_at = 0, t_fail_from = 0;

}  // namespace

uint64_t Allocations() { return t_allocations; }
void FailAllocation(uint64_t n) { t_fail_at = n == 0 ? 0 : t_allocations + n; }
void FailAllocationsFrom(uint64_t n) { t_fail_from = n == 0 ? 0 : t_allocations + n; }

}  // namespace kbundle::testing

#ifndef KB_ADDRESS_SANITIZER
static void* Allocate(size_t size, size_t alignment) {
  using namespace kbundle::testing;  // NOLINT: operator new stands outside of all namespaces
  if (++t_allocations == t_fail_at) throw std::bad_alloc();
  if (t_fail_from != 0 && t_allocations >= t_fail_from) throw std::bad_alloc();
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size == 0 ? 1 : size) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

// GCC inlines half of a replaced pair and then takes the other half for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t size) { return Allocate(size, 16); }
void* operator new[](size_t size) { return Allocate(size, 16); }
void* operator new(size_t size, std::align_val_t a) { return Allocate(size, size_t(a)); }
void* operator new[](size_t size, std::align_val_t a) { return Allocate(size, size_t(a)); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { free(memory); }
#endif
