// A page is read next to its neighbours that are needed as well, so that an op's part of the index
// is a few reads. Only what has its hash is published. The first touch of a page of memory costs
// more than reading and hashing two pages of the index: so two of them lie in each, none across the
// border, and come together.
#include "loader/verify/index_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kbundle/key.h"
#include "loader/support/annotate.h"

namespace kbundle {
namespace {

constexpr uint64_t kPair = 2, kPairBytes = kPair * kIndexPageBytes;

constexpr char kDamaged[] = "damaged; copy or build the file again";

}  // namespace

Status IndexPages::Outside(uint64_t offset, uint64_t size) {
  return DataLoss(fmt::format("{} bytes at {} are outside of the index", size, offset));
}

Status IndexPages::Open(const Header& header, Reader read, bool all, const Allocator& allocator) {
  size_ = header.index_size;
  outline_size_ = size_ - header.pages_size;
  read_ = std::move(read);
  allocator_ = allocator;
  // Of an index that is read page by page, small pages of memory: most of them stay untouched.
  const bool whole = all || !paged();
  const bool placed = !whole && allocator.allocate == nullptr;  // who brings memory counts it
  memory_ = Buffer(allocator, size_ + (placed ? kPairBytes : 0), "the index",
                   whole ? Buffer::Pages::kHuge : Buffer::Pages::kSmall);
  bytes_ = memory_.data();
  if (placed)
    bytes_ += (~(reinterpret_cast<uintptr_t>(bytes_) + outline_size_) + 1) % kPairBytes / 8 * 8;
  const uint64_t pages = PageCount(header.pages_size);
  there_ = std::make_unique<std::atomic<bool>[]>(pages);
  KB_RETURN_IF_ERROR(read_(0, bytes_, all ? size_ : outline_size_));
  KB_RETURN_IF_ERROR(CheckOutline(header));
  if (!all) return Status();
  KB_RETURN_IF_ERROR(CheckAllPages(bytes_));
  for (uint64_t page = 0; page < pages; ++page) {
    there_[page].store(true, std::memory_order_release);
  }
  return Status();
}

Status IndexPages::CheckOutline(const Header& header) {
  if (const uint64_t found = Xxh3(bytes_, outline_size_); found != header.index_xxh3) {
    return DataLoss(fmt::format("index hash {:016x}, the header says {:016x}: {}", found,
                                header.index_xxh3, kDamaged));
  }
  digest_ = Sha256Of(bytes_, outline_size_);
  if (std::memcmp(digest_.data(), header.index_sha256, digest_.size()) == 0) return Status();
  return DataLoss(fmt::format("index SHA-256 is {}, the header says otherwise: altered or {}",
                              ToHex(digest_), kDamaged));
}

Status IndexPages::CheckPage(uint64_t page, const Sha256Digest& found) const {
  const uint8_t* hashes =
      bytes_ + outline_size_ - PageCount(size_ - outline_size_) * kPageHashBytes;
  if (std::memcmp(found.data(), hashes + page * kPageHashBytes, found.size()) == 0) return Status();
  return DataLoss(
      fmt::format("page {} of the index, bytes {} to {} of it: SHA-256 is {}, its outline says "
                  "otherwise: altered, rewritten while open, or {}",
                  page, PageBegin(page), PageEnd(page), ToHex(found), kDamaged));
}

// Two at a time, as long as they are whole.
template <typename Use>
Status IndexPages::HashPages(const Range& range, const uint8_t* index, const Use& use) const {
  uint64_t page = range.first;
  for (; page + 1 < range.end && PageEnd(page + 1) - PageBegin(page) == kPairBytes; page += kPair) {
    const auto [one, two] =
        Sha256OfTwo(index + PageBegin(page), index + PageBegin(page + 1), kIndexPageBytes);
    KB_RETURN_IF_ERROR(use(page, one));
    KB_RETURN_IF_ERROR(use(page + 1, two));
  }
  for (; page < range.end; ++page) {
    const uint64_t size = PageEnd(page) - PageBegin(page);
    KB_RETURN_IF_ERROR(use(page, Sha256Of(index + PageBegin(page), size)));
  }
  return Status();
}

Status IndexPages::CheckAllPages(const uint8_t* index) const {
  return HashPages(
      {0, PageCount(size_ - outline_size_)}, index,
      [this](uint64_t page, const Sha256Digest& found) { return CheckPage(page, found); });
}

// A damaged page that only lies beside what is wanted is not published, and no error of who wants
// the other.
Status IndexPages::Load(const Range& run, const Range& wanted) const {
  const uint64_t begin = PageBegin(run.first);
  KB_RETURN_IF_ERROR(read_(begin, bytes_ + begin, PageEnd(run.end - 1) - begin));
  return HashPages(run, bytes_, [&](uint64_t page, const Sha256Digest& found) {
    Status sound = CheckPage(page, found);
    if (sound.ok()) there_[page].store(true, std::memory_order_release);
    return page >= wanted.first && page < wanted.end ? std::move(sound) : Status();
  });
}

// Not empty, and ends behind the outline.
Status IndexPages::NeedPages(uint64_t offset, uint64_t size) const {
  if (size == 0) return Status();
  const uint64_t first = (std::max(offset, outline_size_) - outline_size_) / kIndexPageBytes;
  const uint64_t end = (offset + size - 1 - outline_size_) / kIndexPageBytes + 1;
  uint64_t page = first;
  while (page < end && there_[page].load(std::memory_order_acquire)) ++page;
  if (page == end) return Status();
  const std::lock_guard lock(mutex_);
  const uint64_t pages = PageCount(size_ - outline_size_);
  const Range pairs{first / kPair * kPair, std::min((end + 1) / kPair * kPair, pages)};
  for (page = pairs.first; page < pairs.end; ++page) {
    Range run{page, page};  // that nobody has read
    while (run.end < pairs.end && !there_[run.end].load(std::memory_order_relaxed)) ++run.end;
    if (run.end > page) KB_RETURN_IF_ERROR(Load(run, {first, end}));
    page = run.end;
  }
  return Status();
}

Status IndexPages::Compare(const Reader& read) const {
  Buffer now(allocator_, size_, "comparing the index");
  KB_RETURN_IF_ERROR(read(0, now.data(), size_));
  const Sha256Digest found = Sha256Of(now.data(), outline_size_);
  if (found != digest_) {
    return DataLoss(fmt::format("index SHA-256 is {}, the header says otherwise", ToHex(found)));
  }
  return CheckAllPages(now.data());
}

}  // namespace kbundle
