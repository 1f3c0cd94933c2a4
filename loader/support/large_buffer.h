// Memory that is written once, at once.
#ifndef KBUNDLE_LOADER_LARGE_BUFFER_H_
#define KBUNDLE_LOADER_LARGE_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace kbundle {

// Of x86-64 and of AArch64 with pages of 4 KiB.
inline constexpr std::align_val_t kHugePage{size_t{2} << 20};

struct DeleteLargeBuffer {
  void operator()(uint8_t* bytes) const { ::operator delete(bytes, kHugePage); }
};
using LargeBuffer = std::unique_ptr<uint8_t[], DeleteLargeBuffer>;

// `size` bytes, not cleared. What is written as a whole lies from 1 MiB on in huge pages, where the
// system gives them to who asks: the first write to each small page is a fault, and faults took
// longer than reading an index of 1.5 MB and nearly as long as its SHA-256.
inline LargeBuffer MakeLargeBuffer(size_t size, bool whole) {
  const size_t page = static_cast<size_t>(kHugePage);
  const bool large = whole && size >= page / 2;
  if (large) size = (size + page - 1) / page * page;  // part of a page would get small ones
  LargeBuffer buffer(static_cast<uint8_t*>(::operator new(size, kHugePage)));
  if (large) (void)::madvise(buffer.get(), size, MADV_HUGEPAGE);  // not taken: as without
  return buffer;
}

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_LARGE_BUFFER_H_
