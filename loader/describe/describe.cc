// A bundle as JSON. What a FlatBuffer leaves out is written as what it means: readers of the JSON
// never need the schema.
#include "kbundle/describe.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"
#include "kbundle/key.h"
#include "loader/bind/cuts.h"
#include "loader/describe/describe_op.h"
#include "loader/open/index.h"
#include "loader/open/variant_rows.h"
#include "loader/provider/provider.h"
#include "loader/support/absent.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {
namespace {

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string Hex(const fb::Sha256& hash) {
  std::string text;
  for (uint8_t byte : *hash.bytes()) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

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

void WriteKernels(JsonWriter& json, const fb::Index& index, const fb::Variant& variant,
                  const fb::Template& source) {
  uint32_t registers = 0;
  int64_t blob = -1;
  for (uint32_t step = Count(source.steps()); step-- > 0;) {
    const fb::Kernel& kernel = *index.kernels()->Get(variant.kernels() + step);
    if (kernel.blob() == kNoBlob) continue;
    registers = std::max(registers, kernel.registers());
    blob = kernel.blob();
  }
  json.Key("registers").Unsigned(registers).Key("blob").Int(blob).Key("kernels").BeginArray();
  for (uint32_t step = 0; step < Count(source.steps()); ++step) {
    const fb::Kernel& kernel = *index.kernels()->Get(variant.kernels() + step);
    json.BeginObject().Key("symbol");
    const auto kind = static_cast<StepKind>(source.steps()->Get(step)->kind());
    if (kernel.blob() == kNoBlob && kind != StepKind::kOwn) {
      json.Null().Key("blob").Int(-1).EndObject();
      continue;
    }
    json.Text(View(index.symbols()->Get(kernel.symbol()))).Key("blob");
    kernel.blob() == kNoBlob ? json.Int(-1) : json.Unsigned(kernel.blob());
    json.Key("registers").Unsigned(kernel.registers());
    json.Key("spill_bytes").Unsigned(kernel.spill_bytes());
    json.Key("static_shared").Unsigned(kernel.static_shared());
    if (kernel.threads() != 0) {
      json.Key("dynamic_shared").Unsigned(kernel.dynamic_shared());
      json.Key("threads").Unsigned(kernel.threads());
    }
    json.EndObject();
  }
  json.EndArray();
}

void WriteVariant(JsonWriter& json, const Bundle& bundle, uint32_t number) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Variant& variant = *index.variants()->Get(number);
  const fb::Template& source = *index.templates()->Get(variant.template_index());
  const fb::Op& op = *index.ops()->Get(variant.op());
  json.BeginObject().Key("id").Text(bundle.VariantId(number));
  json.Key("target").Text(View(index.targets()->Get(variant.target())->name()));
  json.Key("template").Text(View(source.name()));
  json.Key("provider").Text(View(index.providers()->Get(source.provider())));
  json.Key("rank").Unsigned(variant.rank()).Key("ran_on").BeginArray();
  for (const std::string& device : RanOn(bundle, number)) json.Text(device);
  json.EndArray();
  WriteKernels(json, index, variant, source);
  json.Key("types").BeginObject();
  for (uint32_t i = 0; i < Count(op.types()); ++i) {
    json.Key(View(op.types()->Get(i)->name()));
    json.Text(Name(TypeAt(variant.types(), static_cast<int>(i))));
  }
  json.EndObject();
  const auto promise = [&json](const char* name, const fb::Rule* rule) {
    rule == nullptr ? json.Key(name).Null() : json.Key(name).Text(View(rule->text()));
  };
  promise("deterministic", source.deterministic());
  promise("batch_invariant", source.batch_invariant());
  json.Key("tunables").BeginObject();
  for (uint32_t i = 0; i < Count(source.tunables()); ++i) {
    json.Key(View(source.tunables()->Get(i)));
    json.Int(index.constants()->Get(variant.tunables() + i));
  }
  json.EndObject().EndObject();
}

void WriteOp(JsonWriter& json, const Bundle& bundle, uint32_t number, Detail detail) {
  json.BeginObject().Key("name").Text(OpName(IndexOf(bundle), number));
  if (detail == Detail::kName) {
    json.EndObject();
    return;
  }
  const fb::Op& op = OpOf(bundle, number);
  json.Key("summary").Text(View(op.summary()));
  json.Key("interface").Text(Hex(op.interface_hash()));
  WriteInterface(json, op);
  if (detail == Detail::kWhole) {
    WriteProblems(json, op);
    json.Key("variants").BeginArray();
    const VariantRange range = VariantsOf(IndexOf(bundle), number);
    for (uint32_t i = range.first; i < range.end; ++i) WriteVariant(json, bundle, i);
    json.EndArray();
  }
  json.EndObject();
}

void WriteBlobs(JsonWriter& json, const fb::Index& index) {
  const std::vector<std::string_view> formats = BlobFormatNames(index);
  json.Key("blobs").BeginArray();
  for (uint32_t i = 0; i < Count(index.blobs()); ++i) {
    const fb::Blob& blob = *index.blobs()->Get(i);
    json.BeginObject().Key("sha256").Text(Hex(blob.sha256()));
    json.Key("format").Text(formats[i]);
    json.Key("offset").Unsigned(blob.offset()).Key("stored_bytes").Unsigned(blob.stored_size());
    json.Key("bytes").Unsigned(blob.size());
    json.Key("base").Int(blob.base() == kNoBlob ? -1 : static_cast<int64_t>(blob.base()));
    json.EndObject();
  }
  json.EndArray();
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

Result<std::string> DescribeJson(const Bundle& bundle, std::string_view op, Detail detail) {
  uint32_t only = 0;
  if (!op.empty()) {
    KB_ASSIGN_OR_RETURN(only, bundle.FindOp(op));
  }
  const bool every_row = detail == Detail::kWhole || (op.empty() && detail != Detail::kName);
  if (every_row) KB_RETURN_IF_ERROR(bundle.CheckIndex());
  const fb::Index& index = IndexOf(bundle);
  JsonWriter json;
  json.BeginObject().Key("name").Text(bundle.name()).Key("path").Text(bundle.path());
  json.Key("content_id").Text(bundle.content_id());
  json.Key("file_bytes").Unsigned(bundle.file_size()).Key("provenance").BeginObject();
  for (uint32_t i = 0; i < Count(index.provenance()); ++i) {
    const fb::KeyValue& entry = *index.provenance()->Get(i);
    json.Key(View(entry.key())).Text(View(entry.value()));
  }
  json.EndObject().Key("targets").BeginArray();
  for (uint32_t i = 0; i < Count(index.targets()); ++i)
    json.Text(View(index.targets()->Get(i)->name()));
  json.EndArray().Key("devices").BeginArray();
  for (uint32_t i = 0; i < Count(index.devices()); ++i) json.Text(View(index.devices()->Get(i)));
  json.EndArray().Key("ops").BeginArray();
  for (uint32_t i = 0; i < Count(index.ops()); ++i) {
    if (op.empty() || i == only) WriteOp(json, bundle, i, detail);
  }
  json.EndArray();
  if (detail == Detail::kWhole) WriteBlobs(json, index);
  json.EndObject();
  return std::move(json).text();
}

namespace {

void WriteCuts(JsonWriter& json, const std::vector<Cut>& cuts) {
  json.Key("cuts").BeginArray();
  for (const Cut& cut : cuts) {
    json.BeginObject();
    const auto write = [&](const char* key, const std::vector<int>& numbers) {
      json.Key(key).BeginArray();
      for (int number : numbers) json.Int(number);
      json.EndArray();
    };
    write("operands", cut.operands);
    write("results", cut.results);
    json.Key("batch").Bool(cut.batch);
    write("sums", cut.sums);
    write("once", cut.once);
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace

Result<std::string> InferJson(const Bundle& bundle, const Problem& problem, Device::Kind kind) {
  KB_ASSIGN_OR_RETURN(const int64_t workspace, MaxWorkspaceBytes(bundle, problem, kind));
  JsonWriter json;
  json.BeginObject().Key("interface").Text(Hex(OpOf(bundle, problem.op).interface_hash()));
  json.Key("results").BeginArray();
  for (const TensorSpec& result : problem.results) {
    json.BeginObject().Key("present").Bool(result.present).Key("dtype").Text(Name(result.dtype));
    json.Key("dims").BeginArray();
    for (int64_t dim : result.dims) json.Int(dim);
    json.EndArray().EndObject();
  }
  json.EndArray().Key("workspace_bytes").Int(workspace);
  json.Key("empty").Bool(problem.AllResultsEmpty());
  WriteCuts(json, CutsOf(bundle, problem));
  json.EndObject();
  return std::move(json).text();
}

std::string StatsJson(const RuntimeStats& stats) {
  JsonWriter json;
  json.BeginObject().Key("plans_made").Unsigned(stats.plans_made);
  json.Key("plans_shared").Unsigned(stats.plans_shared);
  json.Key("objects_loaded").Unsigned(stats.objects_loaded).Key("chosen").BeginArray();
  for (const RuntimeStats::Chosen& row : stats.chosen) {
    json.BeginObject().Key("bundle").Text(row.bundle).Key("content_id").Text(row.content_id);
    json.Key("op").Text(row.op);
    json.Key("problem").Text(row.problem).Key("variant").Text(row.variant);
    json.Key("choice").Text(row.choice).Key("device").Text(row.device);
    json.Key("reason").Text(row.reason).Key("count").Unsigned(row.count).EndObject();
  }
  json.EndArray().EndObject();
  return std::move(json).text();
}

}  // namespace kbundle
