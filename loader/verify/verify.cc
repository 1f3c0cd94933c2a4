// The header, the ways to check an index, and what all checks are made of. What may be shared
// by many rows costs steps, so that a small file cannot ask for a long check.
#include "loader/verify/verify.h"

#include <cstring>

#include "kbundle/dtype.h"
#include "kbundle/key.h"
#include "kbundle/utf8.h"
#include "loader/support/rows_of_op.h"
#include "loader/verify/op_rows.h"
#include "loader/verify/structure.h"

namespace kbundle {
namespace {

Status CheckMagic(const Header& header) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) == 0) return Status();
  std::string found;
  for (uint8_t byte : header.magic) found += fmt::format("{:02x} ", byte);
  found.pop_back();
  if (std::memcmp(header.magic + 1, kMagic + 1, 5) == 0) {
    return DataLoss(fmt::format(
        "the first bytes are {}: a transfer as text changed the file; copy it again as binary",
        found));
  }
  return DataLoss(fmt::format(
      "not a kbundle file: the first bytes are {}, a bundle begins 89 4b 42 4e 44 4c 0d 0a",
      found));
}

Status CheckVersion(const Header& header) {
  if (header.format_major == 0) return DataLoss("format version 0 does not exist");
  if (header.format_major <= kFormatMajor) return Status();
  return Unimplemented(
      fmt::format("written by format {}.{}, this reads up to {}.{}: upgrade kbundle",
                  header.format_major, header.format_minor, kFormatMajor, kFormatMinor));
}

Status CheckHeaderHash(Header header) {
  const uint64_t stored = header.header_xxh3;
  header.header_xxh3 = 0;
  const uint64_t computed = Xxh3(&header, sizeof(header));
  if (stored == computed) return Status();
  return DataLoss(
      fmt::format("header hash {:016x}, its bytes give {:016x}: damaged; copy or build "
                  "the file again",
                  stored, computed));
}

Status CheckHeaderFields(const Header& header) {
  if (header.header_size != sizeof(Header)) {
    return DataLoss(fmt::format("header size {}, must be {}", header.header_size, sizeof(Header)));
  }
  for (uint8_t byte : header.reserved) {
    if (byte != 0) return DataLoss("reserved header bytes are not zero");
  }
  if ((header.pages_size != 0) != ((header.required_features & kFeaturePages) != 0)) {
    return DataLoss("an index with pages and its feature bit go together");
  }
  if (header.index_offset != sizeof(Header)) {
    return DataLoss(fmt::format("index at {}, must be at {}", header.index_offset, sizeof(Header)));
  }
  KB_RETURN_IF_ERROR(CheckCount(header.index_size, kMaxIndexBytes, "index bytes"));
  if (header.index_size > header.file_size - header.index_offset) {
    return DataLoss(fmt::format("index of {} bytes ends after the file of {}", header.index_size,
                                header.file_size));
  }
  const uint64_t hashes = PageCount(header.pages_size) * kPageHashBytes;
  if (header.pages_size <= header.index_size && hashes <= header.index_size - header.pages_size) {
    return Status();
  }
  return DataLoss(fmt::format("{} bytes of pages and their hashes in an index of {}",
                              header.pages_size, header.index_size));
}

// Of the index that this thread checks; none: no end.
thread_local uint64_t* steps_left = nullptr;

class StepLimit {
 public:
  explicit StepLimit(uint64_t index_size)
      : steps_(kMaxCheckSteps + kMaxCheckStepsPerByte * index_size) {
    steps_left = &steps_;
  }
  ~StepLimit() { steps_left = nullptr; }
  StepLimit(const StepLimit&) = delete;
  StepLimit& operator=(const StepLimit&) = delete;

 private:
  uint64_t steps_;
};

// What VerifyOutline and VerifyOneOp look at only where an op refers to it.
Status VerifyShared(const fb::Index& index) {
  for (uint32_t i = 0; i < Count(index.symbols()); ++i) {
    KB_VERIFY(CheckName(index.symbols()->Get(i), "name"), "symbol {}", i);
  }
  for (uint32_t i = 0; i < Count(index.evidence()); ++i) {
    KB_VERIFY(VerifyEvidence(*index.evidence()->Get(i), index), "evidence {}", i);
  }
  return Status();
}

}  // namespace

Status Spend(uint64_t steps) {
  if (steps_left == nullptr) return Status();
  if (*steps_left < steps) {
    return ResourceExhausted(
        "its names, programs and times are used so often that checking them has no end: build the "
        "file with kbundle");
  }
  *steps_left -= steps;
  return Status();
}

bool IsDType(int number) { return number > 0 && number < kDTypeCount; }

Status TooMany(uint64_t found, uint64_t limit, std::string_view what) {
  return ResourceExhausted(fmt::format("{} {}, at most {} are allowed", found, what, limit));
}

Status NotThere(uint64_t index, uint64_t count, std::string_view what) {
  return DataLoss(fmt::format("{} {} does not exist, there are {}", what, index, count));
}

Status CheckName(const flatbuffers::String* name, std::string_view what) {
  if (name == nullptr || name->size() == 0) return DataLoss(fmt::format("{} is empty", what));
  const std::string_view text = name->string_view();
  if (text.size() <= kMaxNameBytes && IsPrintable(text)) return Spend(text.size());
  KB_RETURN_IF_ERROR(CheckText(name, what));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c >= 0x80 && c < 0xa0 && static_cast<unsigned char>(text[i - 1]) == 0xc2;
    if (c >= 0x20 && c != 0x7f && !c1) continue;
    return DataLoss(fmt::format("{} has control character {:#04x}", what, c));
  }
  return Status();
}

Status CheckText(const flatbuffers::String* text, std::string_view what) {
  if (text == nullptr) return Status();
  if (text->size() > kMaxNameBytes) {
    return ResourceExhausted(
        fmt::format("{} has {} bytes, at most {} are allowed", what, text->size(), kMaxNameBytes));
  }
  KB_RETURN_IF_ERROR(Spend(text->size()));
  const size_t bad = NotUtf8(text->string_view());
  if (bad == text->size()) return Status();
  return DataLoss(fmt::format("{} is not UTF-8: byte {} is {:#04x}", what, bad,
                              static_cast<unsigned char>(text->string_view()[bad])));
}

Status CheckTypeRef(const fb::Op& op, const fb::TypeRef& type) {
  if (type.param() == -1) {
    return IsDType(type.dtype()) ? Status()
                                 : DataLoss(fmt::format("unknown dtype {}", type.dtype()));
  }
  return CheckIndex(static_cast<uint8_t>(type.param()), Count(op.types()), "type parameter");
}

Status VerifyHeader(const Header& header, uint64_t file_size) {
  KB_RETURN_IF_ERROR(CheckMagic(header));
  KB_RETURN_IF_ERROR(CheckVersion(header));
  KB_RETURN_IF_ERROR(CheckHeaderHash(header));
  if (const uint64_t unknown = header.required_features & ~kKnownFeatures; unknown != 0) {
    return Unimplemented(
        fmt::format("it needs feature bits {:#x}, this reader knows {:#x}: upgrade kbundle",
                    unknown, kKnownFeatures));
  }
  if (header.file_size != file_size) {
    return DataLoss(fmt::format("{}: its header says {} bytes, it has {}; copy the file again",
                                file_size < header.file_size ? "truncated" : "extended",
                                header.file_size, file_size));
  }
  return CheckHeaderFields(header);
}

// Of an index with pages the outline comes first, as it does for who reads op by op, and of each op
// that it lies in its part's bytes is seen as well.
Status VerifyIndex(const IndexPages& pages, const Header& header) {
  Structure structure(pages);
  KB_RETURN_IF_ERROR(pages.NeedAll());
  if (pages.paged()) KB_RETURN_IF_ERROR(Structure(pages).CheckOutline());
  KB_RETURN_IF_ERROR(structure.CheckWhole());
  const fb::Index& index = structure.index();
  const StepLimit limit(header.index_size);
  KB_RETURN_IF_ERROR(VerifyOutlineRows(pages, header, true));
  KB_RETURN_IF_ERROR(VerifyShared(index));
  for (uint32_t op = 0; op < Count(index.ops()); ++op) {
    Structure part(pages, PartOf(index, op));
    KB_RETURN_IF_ERROR(VerifyOpRows(pages.paged() ? part : structure, header, op, true));
  }
  return Status();
}

Status VerifyOutline(const IndexPages& pages, const Header& header) {
  Structure structure(pages);
  KB_RETURN_IF_ERROR(structure.CheckOutline());
  const StepLimit limit(header.index_size);
  return VerifyOutlineRows(pages, header, false);
}

Status VerifyOneOp(const IndexPages& pages, const Header& header, uint32_t op) {
  Structure structure(pages, PartOf(*fb::GetIndex(pages.bytes()), op));
  const StepLimit limit(header.index_size);
  return VerifyOpRows(structure, header, op, true);
}

Status VerifyInterface(const IndexPages& pages, const Header& header, uint32_t op) {
  Structure structure(pages, PartOf(*fb::GetIndex(pages.bytes()), op));
  const StepLimit limit(header.index_size);
  return VerifyOpRows(structure, header, op, false);
}

Status VerifyOneEntry(const IndexPages& pages, const Header& header, uint32_t op, uint32_t entry,
                      std::atomic<bool>* known) {
  Structure structure(pages, PartOf(*fb::GetIndex(pages.bytes()), op));
  const StepLimit limit(header.index_size);
  const fb::Entry& of = *structure.index().entries()->Get(entry);
  return VerifyVariantRows(structure, header, op, of.first(), of.first() + of.count(),
                           Depth::kChoice, known);
}

Status VerifyOneVariant(const IndexPages& pages, const Header& header, uint32_t op,
                        uint32_t variant, std::atomic<bool>* known) {
  Structure structure(pages, PartOf(*fb::GetIndex(pages.bytes()), op));
  const StepLimit limit(header.index_size);
  return VerifyVariantRows(structure, header, op, variant, variant + 1, Depth::kAll, known);
}

}  // namespace kbundle
