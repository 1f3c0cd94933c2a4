// The bytes of an index in own memory: its outline from the start, the pages behind it when they
// are first needed, each compared with the SHA-256 that the outline has of it. What was never
// needed costs neither a read nor a hash, and is never looked at.
//
//   | outline .. | hash of page 0, 1, .. | page 0 | page 1 | .. | last page, perhaps shorter |
//   0                                    ^ outline size                            index size ^
#ifndef KBUNDLE_LOADER_VERIFY_INDEX_PAGES_H_
#define KBUNDLE_LOADER_VERIFY_INDEX_PAGES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "kbundle/allocator.h"
#include "kbundle/format.h"
#include "kbundle/sha256.h"
#include "kbundle/status.h"

namespace kbundle {

// Owns the bytes. Any thread may ask for pages; one is read and published at a time, and nothing is
// written to a page that was published. What a page that failed held is read again by the next.
class IndexPages {
 public:
  // `size` bytes of the file from `offset` on, which are the index's own bytes.
  using Reader = std::function<Status(uint64_t offset, void* into, uint64_t size)>;

  IndexPages() = default;
  IndexPages(const IndexPages&) = delete;
  IndexPages& operator=(const IndexPages&) = delete;

  // First of all, once, of a header that has passed VerifyHeader. all: the pages with it, in one
  // read. kDataLoss: not what the header's hashes say. The digest is the outline's.
  Status Open(const Header& header, Reader read, bool all, const Allocator& allocator = {});

  const uint8_t* bytes() const { return bytes_; }
  uint64_t size() const { return size_; }
  uint64_t outline_size() const { return outline_size_; }
  bool paged() const { return size_ != outline_size_; }
  const Sha256Digest& digest() const { return digest_; }

  // Afterwards these bytes may be read. kDataLoss: they lie outside of the index, or a page is
  // damaged.
  Status Need(uint64_t offset, uint64_t size) const {
    if (offset > size_ || size > size_ - offset) return Outside(offset, size);
    if (offset + size <= outline_size_ || size == 0) return Status();
    if (size <= kIndexPageBytes && offset >= outline_size_ && IsThere(offset) &&
        IsThere(offset + size - 1)) {
      return Status();
    }
    return NeedPages(offset, size);
  }
  Status Need(const void* first, uint64_t size) const { return Need(OffsetOf(first), size); }
  Status NeedAll() const { return Need(uint64_t{0}, size_); }
  // Whether the bytes that `read` gives now are those that Open was given.
  Status Compare(const Reader& read) const;

 private:
  uint64_t OffsetOf(const void* place) const {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(place) -
                                 reinterpret_cast<uintptr_t>(bytes_));
  }
  // Of an offset behind the outline.
  bool IsThere(uint64_t offset) const {
    return there_[(offset - outline_size_) / kIndexPageBytes].load(std::memory_order_acquire);
  }
  static Status Outside(uint64_t offset, uint64_t size);
  Status NeedPages(uint64_t offset, uint64_t size) const;
  struct Range {
    uint64_t first, end;  // pages
  };
  Status Load(const Range& run, const Range& wanted) const;  // with the lock held
  Status CheckOutline(const Header& header);
  Status CheckPage(uint64_t page, const Sha256Digest& found) const;
  // `index`: where the bytes of an index begin of which these pages are there. Until use(page,
  // digest) is an error.
  template <typename Use>
  Status HashPages(const Range& range, const uint8_t* index, const Use& use) const;
  Status CheckAllPages(const uint8_t* index) const;
  uint64_t PageBegin(uint64_t page) const { return outline_size_ + page * kIndexPageBytes; }
  uint64_t PageEnd(uint64_t page) const { return std::min(PageBegin(page + 1), size_); }

  uint64_t size_ = 0, outline_size_ = 0;
  Sha256Digest digest_{};
  Buffer memory_;
  uint8_t* bytes_ = nullptr;  // in memory_; pages come when they are needed
  Reader read_;
  Allocator allocator_;
  mutable std::mutex mutex_;
  std::unique_ptr<std::atomic<bool>[]> there_;  // by page
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_VERIFY_INDEX_PAGES_H_
