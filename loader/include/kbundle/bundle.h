// Bundle: the verified, immutable view of one bundle file.
//
// Open checks header, hashes of the index, FlatBuffers structure and meaning, once; afterwards the
// index is trusted. What belongs to one op alone may be checked when the op is first asked for
// instead, so that a first use pays for what it uses. Blobs are read with pread into the caller's
// memory and verified on each read, so a file truncated, rewritten or replaced while open gives
// kDataLoss, never a signal, never wrong code. Every method is const and safe from any thread.
// Views live as long as the Bundle.
#ifndef KBUNDLE_BUNDLE_H_
#define KBUNDLE_BUNDLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/allocator.h"
#include "kbundle/problem.h"
#include "kbundle/sha256.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle {

class FileView;

// When what belongs to one op alone is checked: its declaration, variants and measurements.
enum class Checks {
  kAll,   // by Open
  kByOp,  // by the first FindOp of the op, which is kDataLoss where it is damaged; other ops work.
          // MakeProblem checks its declaration and measurements, Select what choosing looks at of
          // the problem's dtypes on the device's targets, a plan all of the variant that it takes
};

class Bundle {
 public:
  // The allocator serves the bundle's life: its functions and state outlive it and what ReadBlob
  // gave. What it does not give is std::bad_alloc (AllocatorRefused).
  static Result<std::shared_ptr<const Bundle>> Open(const std::string& path,
                                                    Checks checks = Checks::kAll,
                                                    const Allocator& allocator = {});
  // The same of a file that is open already, whose descriptor stays the caller's, and of bytes,
  // which are copied. path() says "descriptor 5", "1475424 bytes of memory".
  static Result<std::shared_ptr<const Bundle>> OpenDescriptor(int fd, Checks checks = Checks::kAll,
                                                              const Allocator& allocator = {});
  static Result<std::shared_ptr<const Bundle>> OpenMemory(std::span<const uint8_t> bytes,
                                                          Checks checks = Checks::kAll,
                                                          const Allocator& allocator = {});
  ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  const std::string& path() const;
  std::string_view name() const;
  // SHA-256 of the index's outline, which holds those of its pages, checked when it was opened:
  // equal digests, equal content. The id is the digest as 64 hex digits.
  std::string content_id() const;
  const Sha256Digest& digest() const;
  uint64_t file_size() const;

  // Whether there is an op of that name; says nothing of its rows.
  bool HasOp(std::string_view op_name) const;
  // kNotFound names the nearest op names. kDataLoss: its part of the index makes no sense.
  Result<uint32_t> FindOp(std::string_view op_name) const;
  // The same, but says nothing of its variants.
  Result<uint32_t> FindInterface(std::string_view op_name) const;

  // Checks the request against the op's interface: operand count, dtypes, ranks, shape relations,
  // attributes, `require`; infers result shapes. kInvalidArgument says which and why.
  Result<Problem> MakeProblem(std::string_view op_name, const ProblemSpec& spec) const;

  // "softmax.scaled_forward/warp_row[T=bf16,VEC=8]@sm_90a": stable over rebuilds. "no variant 7"
  // where there is none, or none of a sound op.
  std::string VariantId(uint32_t variant) const;
  // Without "@target" every target's variant of that name. kNotFound names the nearest.
  Result<std::vector<uint32_t>> FindVariants(std::string_view id) const;

  // The uncompressed, verified bytes of a blob (deltas resolved). kDataLoss on any difference.
  // `bases` caches decompressed bases for a burst of reads; may be null.
  class BaseCache;
  Result<Buffer> ReadBlob(uint32_t blob, BaseCache* bases = nullptr) const;
  // SHA-256 of what ReadBlob gives, as the index has it: the name of the code in every cache.
  // Requires a blob number of the index.
  Sha256Digest BlobDigest(uint32_t blob) const;
  // All that Checks::kByOp has put off, in the order and the words of Checks::kAll.
  Status CheckIndex() const;
  // Every byte of the file: header, index, padding zero, all blobs.
  Status VerifyAll() const;

  // For those of this tree who read the index row by row (loader/open/index.h).
  struct Rep;
  const Rep& rep() const { return *rep_; }

 private:
  explicit Bundle(std::unique_ptr<Rep> rep);
  static Result<std::shared_ptr<const Bundle>> OpenFile(std::string path, Result<FileView> file,
                                                        Checks checks, const Allocator& allocator);
  static Status ReadHeader(Rep* rep);
  static Status ReadIndex(Rep* rep, Checks checks);
  std::unique_ptr<Rep> rep_;
};

// Holds decompressed bases up to a cap (default 64 MiB); not thread-safe; drop it after the burst.
class Bundle::BaseCache {
 public:
  explicit BaseCache(uint64_t cap_bytes = 64ull << 20);
  ~BaseCache();
  struct Rep;
  Rep* rep() { return rep_.get(); }

 private:
  std::unique_ptr<Rep> rep_;
};

}  // namespace kbundle

#endif  // KBUNDLE_BUNDLE_H_
