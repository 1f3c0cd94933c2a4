// What a Bundle owns. Shared by the files that implement Bundle.
#ifndef KBUNDLE_LOADER_BUNDLE_REP_H_
#define KBUNDLE_LOADER_BUNDLE_REP_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "loader/open/file_view.h"
#include "loader/verify/index_pages.h"

namespace kbundle {

inline Sha256Digest DigestOf(const fb::Blob& blob) {
  Sha256Digest digest;
  std::copy_n(blob.sha256().bytes()->data(), digest.size(), digest.begin());
  return digest;
}

struct Bundle::Rep {
  Rep(std::string path, FileView file, const Allocator& allocator)
      : path(std::move(path)), allocator(allocator), file(std::move(file)) {}

  std::string path;
  Allocator allocator;
  FileView file;
  Header header{};
  IndexPages pages;  // own memory: nothing done to the file afterwards reaches what was read
  const fb::Index* index = nullptr;
  // Which ops were found sound, by kind of check; null where everything was checked by Open.
  using Marks = std::unique_ptr<std::atomic<bool>[]>;
  Marks checked;                       // all of the op
  Marks interfaces, entries, choices;  // what VerifyInterface and VerifyOneEntry passed
  Marks templates;                     // all of it, for VerifyOneVariant

  IndexPages::Reader IndexReader() const;  // borrows the file
  Status CheckOp(uint32_t op) const;       // once; of a number below the count of ops
  // Of that, what needs none of its variants; what choosing among those of one dtype on one target
  // looks at, where there are any, or among those that one is of; all of one variant, which may be
  // launched then. Of a number below the count of variants.
  Status CheckInterface(uint32_t op) const;
  Status CheckChoices(uint32_t op, uint16_t target, uint64_t types) const;
  Status CheckChoicesWith(uint32_t variant) const;
  Status CheckVariant(uint32_t variant) const;
  Status CheckBlob(uint32_t blob) const;  // its row; of a number below the count of blobs
  std::optional<uint32_t> NumberOf(std::string_view op) const;
  // Of a variant whose op's rows may not have been looked at.
  uint32_t OpOfVariant(uint32_t variant) const;
  std::string BlobName(uint32_t blob) const;  // "blob 3 of bundle 'x.kb'"
  // One frame, not compared with its hashes; `base` is empty for a frame that stands alone.
  Result<Buffer> InflateBlob(uint32_t number, std::span<const uint8_t> base) const;
  // Verified.
  Result<Buffer> ReadWhole(uint32_t number) const;
  Result<Buffer> ReadDelta(uint32_t number, BaseCache* bases) const;
  // Not verified: good for nothing but a delta.
  Result<std::shared_ptr<const Buffer>> ReadBase(uint32_t number, BaseCache* bases) const;
  Status CheckPadding(uint64_t from, uint64_t to) const;
  Status CheckHeaderAgain() const;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_BUNDLE_REP_H_
