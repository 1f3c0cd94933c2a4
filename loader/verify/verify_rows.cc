// The struct vectors: variants, entries, kernels, blobs. What is many must be quick: every open
// goes over all entries and blobs, an op's first use over all its variants.
#include <tuple>
#include <vector>

#include "kbundle/key.h"
#include "loader/provider/provider.h"
#include "loader/support/rows_of_op.h"
#include "loader/verify/op_rows.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

constexpr uint32_t kNone = kNoBlob;  // Kernel.blob, Blob.base

uint64_t AlignBlob(uint64_t offset) {
  return (offset + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

Status CheckBlob(const fb::Index& index, uint32_t number) {
  const fb::Blob& blob = *index.blobs()->Get(number);
  if (blob.size() == 0 || blob.stored_size() == 0) return DataLoss("it is empty");
  KB_RETURN_IF_ERROR(CheckCount(blob.size(), kMaxBlobBytes, "bytes uncompressed"));
  KB_RETURN_IF_ERROR(
      CheckCount(blob.stored_size(), MaxStoredSize(blob.size()), "bytes of a frame for its size"));
  const auto format = static_cast<uint32_t>(blob.format());
  if (format < static_cast<uint32_t>(fb::BlobFormat::MIN) ||
      format > static_cast<uint32_t>(fb::BlobFormat::MAX)) {
    return DataLoss(fmt::format("unknown format {}", format));
  }
  if (blob.base() == kNone) return Status();
  KB_RETURN_IF_ERROR(CheckIndex(blob.base(), Count(index.blobs()), "base blob"));
  if (blob.base() == number || index.blobs()->Get(blob.base())->base() != kNone) {
    return DataLoss(fmt::format("its base, blob {}, is itself a delta", blob.base()));
  }
  return Status();
}

fb::BlobFormat FormatFor(TargetKind kind, StepKind step) {
  if (step == StepKind::kOwn) return fb::BlobFormat::Own;
  switch (kind) {
    case TargetKind::kCuda:
      return fb::BlobFormat::Cubin;
    case TargetKind::kCudaPortable:
      return fb::BlobFormat::Fatbin;
    default:
      return fb::BlobFormat::HostObject;
  }
}

Status CheckNoCode(const fb::Kernel& row) {
  if (row.blob() != kNone) {
    return DataLoss(fmt::format("blob {} for a step without code", row.blob()));
  }
  if (row.threads() == 0 && row.dynamic_shared() == 0) return Status();
  return DataLoss(fmt::format("{} threads and {} bytes of shared memory for a step without code",
                              row.threads(), row.dynamic_shared()));
}

Status CheckAsking(const fb::Kernel& row, const Provider& provider, uint64_t features) {
  if (provider.asks().empty()) {
    return DataLoss(
        fmt::format("an own step without a blob, and provider {} asks nobody", provider.name()));
  }
  if ((features & kFeatureAsking) == 0) {
    return DataLoss("an own step without a blob without its feature bit");
  }
  return provider.VerifyOwnRow(row);
}

// Of Index.symbols, each looked at once.
Status CheckSymbol(OpRows& rows, uint32_t number) {
  const auto* symbols = rows.index.symbols();
  KB_RETURN_IF_ERROR(CheckIndex(number, Count(symbols), "symbol"));
  if (rows.structure.whole()) return Status();
  if (number < rows.symbols.size() && rows.symbols[number]) return Status();
  KB_RETURN_IF_ERROR(NeedRows(rows.pages, symbols, number, 1));
  KB_VERIFY(rows.structure.CheckString(symbols->Get(number)), "symbol {}", number);
  KB_VERIFY(CheckName(symbols->Get(number), "name"), "symbol {}", number);
  if (number < rows.symbols.size()) rows.symbols[number] = true;
  return Status();
}

// What the row says of itself. A blob's number is no more than that before a launch wants it.
Status CheckKernelNumbers(const OpRows& rows, const fb::Kernel& row, StepKind kind,
                          const Provider& provider) {
  if (row.workspace() != 0 && kind != StepKind::kOwn) {
    return DataLoss("a workspace of its own is for a provider's own steps");
  }
  if (row.workspace() > kMaxStepWorkspace) {
    return ResourceExhausted(
        fmt::format("{} bytes of workspace, at most {}", row.workspace(), kMaxStepWorkspace));
  }
  if (kind == StepKind::kMemset || kind == StepKind::kCopy) return CheckNoCode(row);
  if (kind == StepKind::kOwn && row.blob() == kNone) {
    return CheckAsking(row, provider, rows.header.required_features);
  }
  return CheckIndex(row.blob(), Count(rows.index.blobs()), "blob");
}

// And of its code.
Status CheckKernelRow(OpRows& rows, const fb::Kernel& row, StepKind kind, TargetKind target,
                      const Provider& provider) {
  const fb::Index& index = rows.index;
  KB_RETURN_IF_ERROR(CheckKernelNumbers(rows, row, kind, provider));
  if (kind == StepKind::kMemset || kind == StepKind::kCopy) return Status();
  KB_RETURN_IF_ERROR(CheckSymbol(rows, row.symbol()));
  if (row.blob() == kNone) return Status();  // it asks
  if (rows.pages.paged()) {
    KB_RETURN_IF_ERROR(VerifyOneBlob(rows.pages, rows.header, row.blob()));
  }
  KB_RETURN_IF_ERROR(kind == StepKind::kOwn ? provider.VerifyOwnRow(row)
                                            : provider.VerifyKernelRow(row));
  const auto format = static_cast<fb::BlobFormat>(index.blobs()->Get(row.blob())->format());
  return format == FormatFor(target, kind)
             ? Status()
             : DataLoss(fmt::format("blob {} of format {} for this target", row.blob(),
                                    static_cast<uint32_t>(format)));
}

// Each type parameter has one of its dtypes; the bytes above are zero.
Status CheckEntryTypes(const fb::Op& op, const fb::Entry& entry) {
  const auto* params = op.types();
  KB_RETURN_IF_ERROR(Spend(kMaxTypeParams));
  for (uint32_t i = 0; i < kMaxTypeParams; ++i) {
    const auto dtype = static_cast<uint8_t>(TypeAt(entry.types(), static_cast<int>(i)));
    bool allowed = i >= Count(params) && dtype == 0;
    for (uint32_t k = 0; i < Count(params) && k < params->Get(i)->dtypes()->size(); ++k) {
      allowed |= params->Get(i)->dtypes()->Get(k) == dtype;
    }
    if (!allowed) return DataLoss(fmt::format("dtype {} for type parameter {}", dtype, i));
  }
  return Status();
}

EntryKey KeyOf(const fb::Entry& entry) { return {entry.op(), entry.target(), entry.types()}; }

Status CheckEntry(const OpRows& rows, const fb::Entry& entry) {
  const fb::Index& index = rows.index;
  if (entry.reserved() != 0) return DataLoss("reserved is not 0");
  if (entry.op() != rows.number) return DataLoss(fmt::format("it says op {}", entry.op()));
  KB_RETURN_IF_ERROR(CheckIndex(entry.target(), Count(index.targets()), "target"));
  KB_RETURN_IF_ERROR(CheckEntryTypes(rows.op, entry));
  for (uint32_t i = 0; i < entry.count(); ++i) {
    const fb::Variant& variant = *index.variants()->Get(entry.first() + i);
    if (EntryKey{variant.op(), variant.target(), variant.types()} != KeyOf(entry)) {
      return DataLoss(fmt::format("variant {} has another op, target or types", entry.first() + i));
    }
    if (i > 0 && variant.rank() <= index.variants()->Get(entry.first() + i - 1)->rank()) {
      return DataLoss(
          fmt::format("variant {}: rank {} does not grow", entry.first() + i, variant.rank()));
    }
  }
  return Status();
}

}  // namespace

Status VerifyOneBlob(const IndexPages& pages, const Header& header, uint32_t number) {
  const fb::Index& index = *fb::GetIndex(pages.bytes());
  KB_RETURN_IF_ERROR(NeedRows(pages, index.blobs(), number, 1));
  for (uint32_t i = number; i != kNone; i = index.blobs()->Get(i)->base()) {
    const fb::Blob& blob = *index.blobs()->Get(i);
    if (blob.base() < Count(index.blobs())) {
      KB_RETURN_IF_ERROR(NeedRows(pages, index.blobs(), blob.base(), 1));
    }
    const uint64_t least = header.index_offset + header.index_size;
    if (blob.offset() % kBlobAlignment != 0 || blob.offset() < least ||
        blob.offset() > header.file_size || blob.stored_size() > header.file_size - blob.offset()) {
      return DataLoss(
          fmt::format("blob {} of {} bytes at {}, must be at a multiple of {} in {} to {}", i,
                      blob.stored_size(), blob.offset(), kBlobAlignment, least, header.file_size));
    }
    KB_VERIFY(CheckBlob(index, i), "blob {}", i);  // its base has none
    if (blob.base() != kNone && (header.required_features & kFeatureDeltaFrames) == 0) {
      return DataLoss("delta frames without their feature bit");
    }
  }
  return Status();
}

Status VerifyBlobs(const fb::Index& index, const Header& header) {
  uint64_t end = header.index_offset + header.index_size;
  bool deltas = false;
  for (uint32_t i = 0; i < Count(index.blobs()); ++i) {
    const fb::Blob& blob = *index.blobs()->Get(i);
    if (blob.offset() != AlignBlob(end)) {
      return DataLoss(
          fmt::format("blob {} at {}, must be at {}: no overlap, no hole, aligned to {}", i,
                      blob.offset(), AlignBlob(end), kBlobAlignment));
    }
    end = blob.offset() + blob.stored_size();
    if (end > header.file_size) {
      return DataLoss(fmt::format("blob {} ends at {} of {} bytes", i, end, header.file_size));
    }
    KB_VERIFY(CheckBlob(index, i), "blob {}", i);
    deltas |= blob.base() != kNone;
  }
  if (end != header.file_size) {
    return DataLoss(fmt::format("{} bytes after the last blob", header.file_size - end));
  }
  if (deltas && (header.required_features & kFeatureDeltaFrames) == 0) {
    return DataLoss("delta frames without their feature bit");
  }
  return Status();
}

// Entries cover the variants, in order, without gaps.
Status CheckCover(const fb::Index& index, const RowRange& entries, const RowRange& variants) {
  uint64_t next = variants.first;
  for (uint32_t i = entries.first; i < entries.end; ++i) {
    const fb::Entry& entry = *index.entries()->Get(i);
    if (i > entries.first && !(KeyOf(*index.entries()->Get(i - 1)) < KeyOf(entry))) {
      return DataLoss(
          fmt::format("entry {} is not above the one before: not sorted or not unique", i));
    }
    if (entry.first() != next || entry.count() == 0) {
      return DataLoss(
          fmt::format("entry {} has variants {} + {}, must begin at {} and not be empty", i,
                      entry.first(), entry.count(), next));
    }
    next += entry.count();
    KB_VERIFY(CheckIndex(next - 1, variants.end, "last variant"), "entry {}", i);
    KB_VERIFY(CheckIndex(entry.op(), Count(index.ops()), "op"), "entry {}", i);
  }
  if (next == variants.end) return Status();
  return DataLoss(fmt::format("entries cover {} of {} variants", next, variants.end));
}

Status VerifyEntries(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCount(Count(index.variants()), kMaxVariants, "variants"));
  return CheckCover(index, {0, Count(index.entries())}, {0, Count(index.variants())});
}

Status CheckTemplateNumber(const OpRows& rows, const fb::Variant& variant) {
  KB_RETURN_IF_ERROR(
      CheckIndex(variant.template_index(), Count(rows.index.templates()), "template"));
  if (variant.flags() != 0) return DataLoss(fmt::format("flags {}, must be 0", variant.flags()));
  // Another op's templates have perhaps not been looked at.
  if (variant.template_index() - rows.op.first_template() < rows.op.template_count()) {
    return Status();
  }
  return DataLoss(fmt::format("its template {} belongs to another op", variant.template_index()));
}

Status VerifyVariantOf(OpRows& rows, const fb::Variant& variant, Depth depth) {
  const fb::Index& index = rows.index;
  const fb::Template& row = *index.templates()->Get(variant.template_index());
  const auto kind = static_cast<TargetKind>(index.targets()->Get(variant.target())->kind());
  while (rows.providers.size() < Count(index.providers())) {  // once, for variants are many
    const auto next = static_cast<uint32_t>(rows.providers.size());
    rows.providers.push_back(FindProvider(View(index.providers()->Get(next))));
  }
  const Provider& provider = *rows.providers[row.provider()];
  if (!provider.MakesCodeFor(kind)) {
    return DataLoss(fmt::format("provider {} cannot make code for target '{}'", provider.name(),
                                index.targets()->Get(variant.target())->name()->string_view()));
  }
  if (uint64_t{variant.tunables()} + Count(row.tunables()) > Count(index.constants())) {
    return DataLoss(
        fmt::format("tunables at constant {} of {}", variant.tunables(), Count(index.constants())));
  }
  const uint32_t steps = Count(row.steps());
  if (uint64_t{variant.kernels()} + steps > Count(index.kernels())) {
    return DataLoss(
        fmt::format("kernels at row {} of {}", variant.kernels(), Count(index.kernels())));
  }
  KB_RETURN_IF_ERROR(
      NeedRows(rows.pages, index.constants(), variant.tunables(), Count(row.tunables())));
  KB_RETURN_IF_ERROR(NeedRows(rows.pages, index.kernels(), variant.kernels(), steps));
  for (uint32_t i = 0; i < steps; ++i) {
    const fb::Kernel& kernel = *index.kernels()->Get(variant.kernels() + i);
    const auto step = static_cast<StepKind>(row.steps()->Get(i)->kind());
    KB_VERIFY(depth == Depth::kAll ? CheckKernelRow(rows, kernel, step, kind, provider)
                                   : CheckKernelNumbers(rows, kernel, step, provider),
              "step {}", i);
  }
  return Status();
}

Status VerifyEntriesOf(const OpRows& rows) {
  const fb::Index& index = rows.index;
  const RowRange range = EntriesOfOp(index, rows.number);
  KB_RETURN_IF_ERROR(NeedRows(rows.pages, index.entries(), range.first, range.end - range.first));
  if (rows.part != nullptr) {
    const RowRange own = VariantRowsOfOp(index, rows.number);
    KB_RETURN_IF_ERROR(CheckCover(index, range, own));
    KB_RETURN_IF_ERROR(NeedRows(rows.pages, index.variants(), own.first, own.end - own.first));
  }
  for (uint32_t e = range.first; e < range.end; ++e) {
    KB_VERIFY(CheckEntry(rows, *index.entries()->Get(e)), "entry {}", e);
  }
  return Status();
}

Status VerifyVariantsOf(OpRows& rows) {
  if (!rows.structure.whole()) {
    rows.symbols.resize(std::min(Count(rows.index.symbols()), kMostRemembered));
  }
  const RowRange own = VariantRowsOfOp(rows.index, rows.number);
  for (uint32_t i = own.first; i < own.end; ++i) {
    const fb::Variant& row = *rows.index.variants()->Get(i);
    KB_VERIFY(CheckTemplateNumber(rows, row), "variant {}", i);
    KB_VERIFY(VerifyVariantOf(rows, row, Depth::kAll), "variant {}", i);
  }
  return Status();
}

}  // namespace kbundle
