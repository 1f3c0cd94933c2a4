// Where the large memory of a bundle comes from: its index, its bytes if it was opened from memory,
// and code objects while they are read. A host that accounts for memory, or bounds it, brings its
// own; everything else is small and on the C++ heap.
#ifndef KBUNDLE_ALLOCATOR_H_
#define KBUNDLE_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

namespace kbundle {

// Called from any thread, several at a time. Neither function may throw or call this library.
struct Allocator {
  // `size` > 0 bytes at a multiple of `alignment`, a power of two; null: there are none. Not given:
  // the process's own memory.
  void* (*allocate)(void* state, size_t size, size_t alignment) = nullptr;
  // Of one allocate, with the same numbers. There where `allocate` is.
  void (*release)(void* state, void* memory, size_t size, size_t alignment) = nullptr;
  void* state = nullptr;
};

// What becomes of an allocator's null: like any memory that has run out, but it says for what.
class AllocatorRefused : public std::bad_alloc {
 public:
  AllocatorRefused(const char* what_for, size_t size, const char* refusal) noexcept;
  const char* what() const noexcept override { return text_; }

 private:
  char text_[256];
};

// Bytes of an allocator, not cleared. Owns them; movable.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;
  // kHuge: in huge pages where nobody has brought an allocator, for what is written as a whole: the
  // first write to each small page is a fault, and faults took longer than reading an index of
  // 1.5 MB and nearly as long as its SHA-256.
  enum class Pages : uint8_t { kSmall, kHuge };

  Buffer() = default;
  // Throws AllocatorRefused or std::bad_alloc. what_for: "the index"; not kept.
  Buffer(const Allocator& allocator, size_t size, const char* what_for,
         Pages pages = Pages::kSmall);
  Buffer(Buffer&& other) noexcept
      : allocator_(other.allocator_),
        bytes_(std::exchange(other.bytes_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        alignment_(other.alignment_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    std::swap(alignment_, other.alignment_);
    return *this;
  }
  ~Buffer();

  uint8_t* data() { return bytes_; }
  const uint8_t* data() const { return bytes_; }
  size_t size() const { return size_; }
  uint8_t* begin() { return bytes_; }
  uint8_t* end() { return bytes_ + size_; }
  const uint8_t* begin() const { return bytes_; }
  const uint8_t* end() const { return bytes_ + size_; }

 private:
  Allocator allocator_;
  uint8_t* bytes_ = nullptr;
  size_t size_ = 0;
  size_t alignment_ = kAlignment;
};

bool operator==(const Buffer& a, std::span<const uint8_t> b);

}  // namespace kbundle

#endif  // KBUNDLE_ALLOCATOR_H_
