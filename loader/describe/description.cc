// What the index says of a bundle, its variants and blobs, as values. What a FlatBuffer leaves out
// is written as what it means: readers of the values never need the schema.
#include "kbundle/description.h"

#include <algorithm>

#include "kbundle/bundle_generated.h"
#include "kbundle/key.h"
#include "loader/describe/describe_op.h"
#include "loader/open/index.h"
#include "loader/open/variant_rows.h"
#include "loader/provider/provider.h"
#include "loader/support/absent.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {
namespace {

// An own blob is what the provider of its variants says.
std::vector<std::string_view> BlobFormatNames(const fb::Index& index) {
  std::vector<std::string_view> names(Count(index.blobs()), "unknown");
  for (uint32_t i = 0; i < names.size(); ++i) {
    const auto format = static_cast<fb::BlobFormat>(index.blobs()->Get(i)->format());
    if (format == fb::BlobFormat::Cubin) names[i] = "cubin";
    if (format == fb::BlobFormat::Fatbin) names[i] = "fatbin";
    if (format == fb::BlobFormat::HostObject) names[i] = "host object";
  }
  for (uint32_t i = 0; i < Count(index.variants()); ++i) {
    const fb::Variant& variant = *index.variants()->Get(i);
    const fb::Template& row = *index.templates()->Get(variant.template_index());
    for (uint32_t step = 0; step < Count(row.steps()); ++step) {
      if (static_cast<StepKind>(row.steps()->Get(step)->kind()) != StepKind::kOwn) continue;
      const uint32_t blob = index.kernels()->Get(variant.kernels() + step)->blob();
      if (blob != kNoBlob) names[blob] = ProviderOf(index, row).OwnBlobName();
    }
  }
  return names;
}

std::vector<KernelDescription> KernelsOf(const fb::Index& index, const fb::Variant& variant,
                                         const fb::Template& source) {
  std::vector<KernelDescription> kernels(Count(source.steps()));
  for (uint32_t step = 0; step < kernels.size(); ++step) {
    const fb::Kernel& row = *index.kernels()->Get(variant.kernels() + step);
    const bool own = static_cast<StepKind>(source.steps()->Get(step)->kind()) == StepKind::kOwn;
    KernelDescription& kernel = kernels[step];
    kernel.code = own || row.blob() != kNoBlob;
    if (!kernel.code) continue;
    kernel.symbol = View(index.symbols()->Get(row.symbol()));
    if (row.blob() != kNoBlob) kernel.blob = row.blob();
    kernel.registers = row.registers();
    kernel.spill_bytes = row.spill_bytes();
    kernel.static_shared = row.static_shared();
    kernel.dynamic_shared = row.dynamic_shared();
    kernel.threads = row.threads();
  }
  return kernels;
}

std::optional<std::string_view> Promise(const fb::Rule* rule) {
  if (rule == nullptr) return std::nullopt;
  return View(rule->text());
}

VariantDescription DescribeVariant(const Bundle& bundle, uint32_t number) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Variant& row = *index.variants()->Get(number);
  const fb::Template& source = *index.templates()->Get(row.template_index());
  VariantDescription variant;
  variant.id = bundle.VariantId(number);
  variant.target = View(index.targets()->Get(row.target())->name());
  variant.name = View(source.name());
  variant.provider = View(index.providers()->Get(source.provider()));
  variant.rank = row.rank();
  variant.ran_on = RanOn(bundle, number);
  variant.kernels = KernelsOf(index, row, source);
  for (uint32_t i = 0; i < Count(index.ops()->Get(row.op())->types()); ++i) {
    variant.types.push_back(TypeAt(row.types(), static_cast<int>(i)));
  }
  variant.deterministic = Promise(source.deterministic());
  variant.batch_invariant = Promise(source.batch_invariant());
  for (uint32_t i = 0; i < Count(source.tunables()); ++i) {
    variant.tunables.emplace_back(View(source.tunables()->Get(i)),
                                  index.constants()->Get(row.tunables() + i));
  }
  return variant;
}

OpDescription DescribeOp(const Bundle& bundle, uint32_t number, Detail detail) {
  OpDescription op;
  op.name = OpName(IndexOf(bundle), number);
  if (detail == Detail::kName) return op;
  const fb::Op& row = OpOf(bundle, number);
  DescribeInterface(row, &op);
  if (detail == Detail::kInterface) return op;
  DescribeProblems(row, &op);
  const VariantRange range = VariantsOf(IndexOf(bundle), number);
  for (uint32_t i = range.first; i < range.end; ++i) {
    op.variants.push_back(DescribeVariant(bundle, i));
  }
  return op;
}

std::vector<BlobDescription> DescribeBlobs(const fb::Index& index) {
  const std::vector<std::string_view> formats = BlobFormatNames(index);
  std::vector<BlobDescription> blobs(formats.size());
  for (uint32_t i = 0; i < blobs.size(); ++i) {
    const fb::Blob& row = *index.blobs()->Get(i);
    const auto& sha256 = *row.sha256().bytes();
    std::copy(sha256.begin(), sha256.end(), blobs[i].sha256.begin());
    blobs[i].format = formats[i];
    blobs[i].offset = row.offset();
    blobs[i].stored_bytes = row.stored_size();
    blobs[i].bytes = row.size();
    if (row.base() != kNoBlob) blobs[i].base = row.base();
  }
  return blobs;
}

}  // namespace

std::vector<std::string> RanOn(const Bundle& bundle, uint32_t number) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Variant& variant = *index.variants()->Get(number);
  const uint32_t steps = Count(index.templates()->Get(variant.template_index())->steps());
  const auto ran = [&](uint32_t blob, uint32_t device) {  // sorted by (blob, device)
    uint32_t low = 0, high = Count(index.ran_on());
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      const fb::RanOn& fact = *index.ran_on()->Get(middle);
      if (fact.blob() == blob && fact.device() == device) return true;
      const bool before = fact.blob() < blob || (fact.blob() == blob && fact.device() < device);
      (before ? low : high) = before ? middle + 1 : middle;
    }
    return false;
  };
  std::vector<std::string> devices;
  for (uint32_t device = 0; device < Count(index.devices()); ++device) {
    bool any = false, all = true;
    for (uint32_t step = 0; step < steps; ++step) {
      const uint32_t blob = index.kernels()->Get(variant.kernels() + step)->blob();
      if (blob == kNoBlob) continue;
      any = true;
      all = all && ran(blob, device);
    }
    if (any && all) devices.emplace_back(View(index.devices()->Get(device)));
  }
  return devices;
}

Result<BundleDescription> Describe(const Bundle& bundle, std::string_view op, Detail detail) {
  uint32_t only = 0;
  if (!op.empty()) {
    KB_ASSIGN_OR_RETURN(only, bundle.FindOp(op));
  }
  const bool every_row = detail == Detail::kWhole || (op.empty() && detail != Detail::kName);
  if (every_row) KB_RETURN_IF_ERROR(bundle.CheckIndex());
  const fb::Index& index = IndexOf(bundle);
  BundleDescription description;
  description.name = bundle.name();
  description.path = bundle.path();
  description.content_id = bundle.content_id();
  description.file_bytes = bundle.file_size();
  for (uint32_t i = 0; i < Count(index.provenance()); ++i) {
    const fb::KeyValue& entry = *index.provenance()->Get(i);
    description.provenance.emplace_back(View(entry.key()), View(entry.value()));
  }
  for (uint32_t i = 0; i < Count(index.targets()); ++i)
    description.targets.push_back(View(index.targets()->Get(i)->name()));
  description.parts.push_back({bundle.path(), bundle.content_id(), bundle.file_size(), {}});
  description.parts[0].targets = description.targets;
  for (uint32_t i = 0; i < Count(index.devices()); ++i)
    description.devices.push_back(View(index.devices()->Get(i)));
  for (uint32_t i = 0; i < Count(index.ops()); ++i) {
    if (op.empty() || i == only) description.ops.push_back(DescribeOp(bundle, i, detail));
  }
  if (detail == Detail::kWhole) description.blobs = DescribeBlobs(index);
  return description;
}

}  // namespace kbundle
