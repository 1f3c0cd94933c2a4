// Opening: header, index, structure, meaning, each checked once and in this order. What belongs to
// one op alone may wait until somebody asks for the op: FindOp is the door to its rows. After that
// the index is trusted, and what is left are look-ups.
#include "kbundle/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kbundle/key.h"
#include "kbundle/nearest.h"
#include "kbundle/sha256.h"
#include "loader/open/bundle_rep.h"
#include "loader/open/index.h"
#include "loader/open/variant_rows.h"
#include "loader/support/rows_of_op.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

Status CheckSize(std::span<const uint8_t> bytes) {
  if (bytes.size() > size_t{PTRDIFF_MAX}) {
    return InvalidArgument(
        fmt::format("nothing in memory has more than {} bytes, given are {}: "
                    "give the size of the file that lies there",
                    PTRDIFF_MAX, bytes.size()));
  }
  if (bytes.size() < sizeof(Header)) return Status();  // ReadHeader says so
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return VerifyHeader(header, bytes.size());
}

}  // namespace

Bundle::Bundle(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Bundle::~Bundle() = default;

Status Bundle::ReadHeader(Rep* rep) {
  const uint64_t size = rep->file.size();
  if (size < sizeof(Header)) {
    return DataLoss(
        fmt::format("{} has {} bytes, a bundle has at least {}: truncated or not a "
                    "bundle; copy the file again",
                    size == 0 ? "the empty file" : "it", size, sizeof(Header)));
  }
  KB_RETURN_IF_ERROR(rep->file.Read(0, &rep->header, sizeof(Header)));
  return VerifyHeader(rep->header, size);
}

Status Bundle::ReadIndex(Rep* rep, Checks checks) {
  const bool all = checks == Checks::kAll;
  KB_RETURN_IF_ERROR(rep->pages.Open(rep->header, rep->IndexReader(), all, rep->allocator));
  Status sound =
      all ? VerifyIndex(rep->pages, rep->header) : VerifyOutline(rep->pages, rep->header);
  if (!sound.ok()) return std::move(sound).Annotate("index");
  rep->index = fb::GetIndex(rep->pages.bytes());
  if (all) return Status();
  rep->checked = std::make_unique<std::atomic<bool>[]>(Count(rep->index->ops()));
  rep->interfaces = std::make_unique<std::atomic<bool>[]>(Count(rep->index->ops()));
  rep->entries = std::make_unique<std::atomic<bool>[]>(Count(rep->index->entries()));
  rep->choices = std::make_unique<std::atomic<bool>[]>(Count(rep->index->templates()));
  rep->templates = std::make_unique<std::atomic<bool>[]>(Count(rep->index->templates()));
  return Status();
}

// Of two threads that ask at once each may check: the answer is the same, and nothing is written
// but that it was good. An op that is refused is checked, and refused, whenever it is asked for.
Status Bundle::Rep::CheckOp(uint32_t op) const {
  if (checked == nullptr || checked[op].load(std::memory_order_acquire)) return Status();
  KB_RETURN_IF_ERROR(VerifyOneOp(pages, header, op).Annotate("index"));
  checked[op].store(true, std::memory_order_release);
  return Status();
}

Status Bundle::Rep::CheckInterface(uint32_t op) const {
  if (checked == nullptr || checked[op].load(std::memory_order_acquire)) return Status();
  if (interfaces[op].load(std::memory_order_acquire)) return Status();
  KB_RETURN_IF_ERROR(VerifyInterface(pages, header, op).Annotate("index"));
  interfaces[op].store(true, std::memory_order_release);
  return Status();
}

Status Bundle::Rep::CheckChoices(uint32_t op, uint16_t target, uint64_t types) const {
  if (checked == nullptr || checked[op].load(std::memory_order_acquire)) return Status();
  KB_RETURN_IF_ERROR(CheckInterface(op));
  const std::optional<uint32_t> entry = EntryOf(*index, {op, target, types});
  if (!entry || entries[*entry].load(std::memory_order_acquire)) return Status();
  KB_VERIFY(VerifyOneEntry(pages, header, op, *entry, choices.get()).Annotate("index"),
            "using bundle '{}'", path);
  entries[*entry].store(true, std::memory_order_release);
  return Status();
}

Status Bundle::Rep::CheckChoicesWith(uint32_t variant) const {
  if (checked == nullptr) return Status();
  const uint32_t op = OpOfVariant(variant);
  KB_RETURN_IF_ERROR(CheckInterface(op));  // which has looked at the row's key
  const fb::Variant& row = *index->variants()->Get(variant);
  return CheckChoices(op, row.target(), row.types());
}

// A variant has no mark of its own: there are thousands, and few are ever asked for.
Status Bundle::Rep::CheckVariant(uint32_t variant) const {
  if (checked == nullptr) return Status();
  const uint32_t op = OpOfVariant(variant);
  if (checked[op].load(std::memory_order_acquire)) return Status();
  KB_RETURN_IF_ERROR(CheckChoicesWith(variant));
  KB_VERIFY(VerifyOneVariant(pages, header, op, variant, templates.get()).Annotate("index"),
            "using bundle '{}'", path);
  return Status();
}

IndexPages::Reader Bundle::Rep::IndexReader() const {
  return [this](uint64_t offset, void* into, uint64_t size) {
    return file.Read(header.index_offset + offset, into, size);
  };
}

Status Bundle::Rep::CheckBlob(uint32_t blob) const {
  if (checked == nullptr || !pages.paged()) return Status();
  return VerifyOneBlob(pages, header, blob).Annotate("index");
}

Status Bundle::CheckIndex() const {
  if (rep_->checked == nullptr) return Status();
  KB_VERIFY(VerifyIndex(rep_->pages, rep_->header).Annotate("index"), "bundle '{}'", rep_->path);
  for (uint32_t op = 0; op < Count(rep_->index->ops()); ++op) {
    rep_->checked[op].store(true, std::memory_order_release);
  }
  return Status();
}

Result<std::shared_ptr<const Bundle>> Bundle::Open(const std::string& path, Checks checks,
                                                   const Allocator& allocator) {
  return OpenFile(path, FileView::Open(path), checks, allocator);
}

Result<std::shared_ptr<const Bundle>> Bundle::OpenDescriptor(int fd, Checks checks,
                                                             const Allocator& allocator) {
  return OpenFile(fmt::format("descriptor {}", fd), FileView::OfDescriptor(fd), checks, allocator);
}

Result<std::shared_ptr<const Bundle>> Bundle::OpenMemory(std::span<const uint8_t> bytes,
                                                         Checks checks,
                                                         const Allocator& allocator) {
  // Before that much memory is taken and read: a size that is none, as -1 for a pipe, and one that
  // the header does not say.
  Status sized = CheckSize(bytes);
  if (!sized.ok()) {
    return std::move(sized).Annotate(
        fmt::format("opening bundle '{} bytes of memory'", bytes.size()));
  }
  Buffer copy(allocator, bytes.size(), "the bytes of a bundle");
  std::copy(bytes.begin(), bytes.end(), copy.data());
  return OpenFile(fmt::format("{} bytes of memory", bytes.size()),
                  FileView::OfBytes(std::move(copy)), checks, allocator);
}

Result<std::shared_ptr<const Bundle>> Bundle::OpenFile(std::string path, Result<FileView> file,
                                                       Checks checks, const Allocator& allocator) {
  const auto context = [&path] { return fmt::format("opening bundle '{}'", path); };
  if (!file.ok()) return std::move(file).status().Annotate(context());
  auto rep = std::make_unique<Rep>(path, std::move(*file), allocator);
  Status status = ReadHeader(rep.get());
  if (status.ok()) status = ReadIndex(rep.get(), checks);
  if (!status.ok()) return std::move(status).Annotate(context());
  return std::shared_ptr<const Bundle>(new Bundle(std::move(rep)));
}

const std::string& Bundle::path() const { return rep_->path; }
std::string_view Bundle::name() const { return rep_->index->name()->string_view(); }
std::string Bundle::content_id() const { return ToHex(digest()); }
const Sha256Digest& Bundle::digest() const { return rep_->pages.digest(); }
uint64_t Bundle::file_size() const { return rep_->header.file_size; }

Sha256Digest Bundle::BlobDigest(uint32_t blob) const {
  return DigestOf(*rep_->index->blobs()->Get(blob));
}

std::string Bundle::Rep::BlobName(uint32_t blob) const {
  return fmt::format("blob {} of bundle '{}'", blob, path);
}

std::optional<uint32_t> Bundle::Rep::NumberOf(std::string_view op) const {
  const auto* ops = index->ops();
  uint32_t low = 0, high = Count(ops);
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (OpName(*index, middle) < op)
      low = middle + 1;
    else
      high = middle;
  }
  if (low < Count(ops) && OpName(*index, low) == op) return low;
  return std::nullopt;
}

bool Bundle::HasOp(std::string_view op_name) const { return rep_->NumberOf(op_name).has_value(); }

Result<uint32_t> Bundle::FindOp(std::string_view op_name) const {
  KB_ASSIGN_OR_RETURN(const uint32_t op, FindInterface(op_name));
  KB_VERIFY(rep_->CheckOp(op), "using bundle '{}'", rep_->path);
  return op;
}

Result<uint32_t> Bundle::FindInterface(std::string_view op_name) const {
  if (const std::optional<uint32_t> op = rep_->NumberOf(op_name)) {
    KB_VERIFY(rep_->CheckInterface(*op), "using bundle '{}'", rep_->path);
    return *op;
  }
  const auto* ops = rep_->index->ops();
  std::vector<std::string> names;
  for (uint32_t i = 0; i < Count(ops); ++i) names.emplace_back(OpName(*rep_->index, i));
  std::string has = "no op at all";
  if (!names.empty()) {
    constexpr size_t kShown = 12;
    const size_t shown = std::min(names.size(), kShown);
    has = fmt::format(
        "{}{}", fmt::join(names.begin(), names.begin() + shown, ", "),
        names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "");
  }
  return NotFound(fmt::format("bundle '{}' has no op '{}'{}; it has {}", rep_->path, op_name,
                              DidYouMean(op_name, names), has));
}

const fb::Index& IndexOf(const Bundle& bundle) { return *bundle.rep().index; }

const fb::Op& OpOf(const Bundle& bundle, uint32_t op) { return *IndexOf(bundle).ops()->Get(op); }

}  // namespace kbundle
