// Memory of nobody's allocator is operator new's; from half a huge page on it may be whole ones.
#include "kbundle/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>

namespace kbundle {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;  // of x86-64 and of AArch64 with pages of 4 KiB

uint8_t* OwnMemory(size_t size, size_t alignment) {
  // Rounded up beyond what an object can have, a size would wrap: libstdc++'s operator new gave few
  // bytes for 2^64 - 1.
  if (size > size_t{PTRDIFF_MAX} - alignment) throw std::bad_alloc();
  const bool huge = alignment == kHugePage;
  if (huge) size = (size + kHugePage - 1) / kHugePage * kHugePage;  // part of one would be small
  void* memory = ::operator new (size, std::align_val_t{alignment});
  if (huge) (void)::madvise(memory, size, MADV_HUGEPAGE);  // not taken: as without
  return static_cast<uint8_t*>(memory);
}

uint8_t* GivenMemory(const Allocator& allocator, size_t size, const char* what_for) {
  void* memory = allocator.allocate(allocator.state, size, Buffer::kAlignment);
  if (memory == nullptr) throw AllocatorRefused(what_for, size, "gave NULL");
  if (reinterpret_cast<uintptr_t>(memory) % Buffer::kAlignment != 0) {
    allocator.release(allocator.state, memory, size, Buffer::kAlignment);
    throw AllocatorRefused(what_for, size, "gave memory that is less aligned");
  }
  return static_cast<uint8_t*>(memory);
}

}  // namespace

AllocatorRefused::AllocatorRefused(const char* what_for, size_t size,
                                   const char* refusal) noexcept {
  std::snprintf(text_, sizeof text_,
                "taking memory for %s: the allocator that the bundle was opened with %s for %zu "
                "bytes aligned to %zu: let it give them, or open the bundle without one",
                what_for, refusal, size, Buffer::kAlignment);
}

Buffer::Buffer(const Allocator& allocator, size_t size, const char* what_for, Pages pages)
    : allocator_(allocator), size_(size) {
  if (size == 0) return;
  if (allocator.allocate != nullptr) {
    bytes_ = GivenMemory(allocator, size, what_for);
  } else {
    if (pages == Pages::kHuge && size >= kHugePage / 2) alignment_ = kHugePage;
    bytes_ = OwnMemory(size, alignment_);
  }
}

Buffer::~Buffer() {
  if (bytes_ == nullptr) return;
  if (allocator_.allocate != nullptr) {
    allocator_.release(allocator_.state, bytes_, size_, alignment_);
  } else {
    ::operator delete (bytes_, std::align_val_t{alignment_});
  }
}

bool operator==(const Buffer& a, std::span<const uint8_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace kbundle
