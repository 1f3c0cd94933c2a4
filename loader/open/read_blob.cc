// Blobs: from the file into own memory, inflated, compared with the hashes in the index. Nothing
// that has not passed here reaches a driver or a CPU. XXH3 alone would not do: 32 bytes that nobody
// looks at are enough to give other code the same XXH3 and size.
#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <memory>

#include "kbundle/key.h"
#include "kbundle/sha256.h"
#include "loader/open/bundle_rep.h"
#include "loader/open/inflate.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

Status CheckContent(const fb::Blob& blob, const Buffer& bytes) {
  constexpr char kAdvice[] = "damaged, or rewritten while open; copy or build the file again";
  if (const uint64_t found = Xxh3(bytes.data(), bytes.size()); found != blob.xxh3()) {
    return DataLoss(
        fmt::format("hash {:016x}, the index says {:016x}: {}", found, blob.xxh3(), kAdvice));
  }
  const Sha256Digest found = Sha256Of(bytes.data(), bytes.size());
  if (found == DigestOf(blob)) return Status();
  return DataLoss(fmt::format("SHA-256 {}, the index says otherwise: {}", ToHex(found), kAdvice));
}

}  // namespace

// First in, first out: a burst reads siblings of one base after another.
struct Bundle::BaseCache::Rep {
  struct Row {
    Sha256Digest digest;
    std::shared_ptr<const Buffer> bytes;
  };

  std::shared_ptr<const Buffer> Find(const Sha256Digest& digest) const {
    for (const Row& row : rows) {
      if (row.digest == digest) return row.bytes;
    }
    return nullptr;
  }

  void Insert(const Sha256Digest& digest, std::shared_ptr<const Buffer> bytes) {
    if (bytes->size() > cap) return;
    while (held + bytes->size() > cap) {
      held -= rows.front().bytes->size();
      rows.pop_front();
    }
    held += bytes->size();
    rows.push_back({digest, std::move(bytes)});
  }

  uint64_t cap = 0;
  uint64_t held = 0;
  std::deque<Row> rows;
};

Bundle::BaseCache::BaseCache(uint64_t cap_bytes) : rep_(std::make_unique<Rep>()) {
  rep_->cap = cap_bytes;
}
Bundle::BaseCache::~BaseCache() = default;

Result<Buffer> Bundle::Rep::InflateBlob(uint32_t number, std::span<const uint8_t> base) const {
  const fb::Blob& blob = *index->blobs()->Get(number);
  Buffer stored(allocator, blob.stored_size(), "a code object as it is stored");
  KB_RETURN_IF_ERROR(file.Read(blob.offset(), stored.data(), stored.size()));
  return Inflate(stored, blob.size(), base, allocator);
}

Result<std::shared_ptr<const Buffer>> Bundle::Rep::ReadBase(uint32_t number,
                                                            BaseCache* bases) const {
  const Sha256Digest digest = DigestOf(*index->blobs()->Get(number));
  if (bases != nullptr) {
    if (auto held = bases->rep()->Find(digest)) return held;
  }
  Result<Buffer> bytes = InflateBlob(number, {});
  if (!bytes.ok()) return std::move(bytes).status().Annotate(fmt::format("base blob {}", number));
  auto shared = std::make_shared<const Buffer>(std::move(*bytes));
  if (bases != nullptr) bases->rep()->Insert(digest, shared);
  return shared;
}

// A base is compared with its hashes only where the delta does not come out right, to tell which of
// the two is damaged: the delta's own hashes cover what the base did to it.
Result<Buffer> Bundle::Rep::ReadDelta(uint32_t number, BaseCache* bases) const {
  const fb::Blob& blob = *index->blobs()->Get(number);
  KB_ASSIGN_OR_RETURN(const std::shared_ptr<const Buffer> base, ReadBase(blob.base(), bases));
  Result<Buffer> bytes = InflateBlob(number, *base);
  Status sound = bytes.ok() ? CheckContent(blob, *bytes) : bytes.status();
  if (sound.ok()) return bytes;
  KB_VERIFY(CheckContent(*index->blobs()->Get(blob.base()), *base), "base blob {}", blob.base());
  return sound;
}

Result<Buffer> Bundle::Rep::ReadWhole(uint32_t number) const {
  KB_ASSIGN_OR_RETURN(Buffer bytes, InflateBlob(number, {}));
  KB_RETURN_IF_ERROR(CheckContent(*index->blobs()->Get(number), bytes));
  return bytes;
}

Result<Buffer> Bundle::ReadBlob(uint32_t blob, BaseCache* bases) const {
  const auto* blobs = rep_->index->blobs();
  KB_VERIFY(kbundle::CheckIndex(blob, Count(blobs), "blob"), "bundle '{}'", rep_->path);
  KB_VERIFY(rep_->CheckBlob(blob), "reading {}", rep_->BlobName(blob));
  Result<Buffer> bytes =
      blobs->Get(blob)->base() == kNoBlob ? rep_->ReadWhole(blob) : rep_->ReadDelta(blob, bases);
  if (bytes.ok()) return bytes;
  return std::move(bytes).status().Annotate("reading " + rep_->BlobName(blob));
}

Status Bundle::Rep::CheckPadding(uint64_t from, uint64_t to) const {
  uint8_t padding[kBlobAlignment];
  KB_CHECK(to - from < sizeof(padding));  // the semantic pass has seen the offsets
  KB_RETURN_IF_ERROR(file.Read(from, padding, to - from));
  for (uint64_t i = 0; i < to - from; ++i) {
    if (padding[i] == 0) continue;
    return DataLoss(
        fmt::format("padding byte {} is {:#04x}, must be 0: damaged", from + i, padding[i]));
  }
  return Status();
}

Status Bundle::Rep::CheckHeaderAgain() const {
  Header now;
  KB_RETURN_IF_ERROR(file.Read(0, &now, sizeof(now)));
  if (std::memcmp(&now, &header, sizeof(now)) != 0)
    return DataLoss("the header changed while open");
  return pages.Compare(IndexReader());
}

Status Bundle::VerifyAll() const {
  const auto* blobs = rep_->index->blobs();
  KB_RETURN_IF_ERROR(CheckIndex());
  KB_VERIFY(rep_->CheckHeaderAgain(), "verifying bundle '{}'", rep_->path);
  BaseCache bases;
  uint64_t end = rep_->header.index_offset + rep_->header.index_size;
  for (uint32_t i = 0; i < Count(blobs); ++i) {
    const fb::Blob& blob = *blobs->Get(i);
    KB_VERIFY(rep_->CheckPadding(end, blob.offset()), "verifying bundle '{}'", rep_->path);
    end = blob.offset() + blob.stored_size();
    KB_VERIFY(ReadBlob(i, &bases).status(), "verifying");
  }
  return Status();
}

}  // namespace kbundle
