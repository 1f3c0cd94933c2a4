// People and other languages read a bundle as JSON, and it must say what C is told: so nothing
// is looked up here, each function spells out values that description.h or the runtime has made.
#include "kbundle/describe.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kbundle/json.h"
#include "loader/describe/op_json.h"

namespace kbundle {
namespace {

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

void WriteKernels(JsonWriter& json, const std::vector<KernelDescription>& kernels) {
  uint32_t registers = 0;
  int64_t first_blob = -1;
  for (const KernelDescription& kernel : kernels) {
    registers = std::max(registers, kernel.blob < 0 ? 0 : kernel.registers);
    if (first_blob < 0) first_blob = kernel.blob;
  }
  json.Key("registers").Unsigned(registers).Key("blob").Int(first_blob);
  json.Key("kernels").BeginArray();
  for (const KernelDescription& kernel : kernels) {
    json.BeginObject().Key("symbol");
    kernel.code ? json.Text(kernel.symbol) : json.Null();
    json.Key("blob").Int(kernel.blob);
    if (kernel.code) {
      json.Key("registers").Unsigned(kernel.registers);
      json.Key("spill_bytes").Unsigned(kernel.spill_bytes);
      json.Key("static_shared").Unsigned(kernel.static_shared);
    }
    if (kernel.threads != 0) {
      json.Key("dynamic_shared").Unsigned(kernel.dynamic_shared);
      json.Key("threads").Unsigned(kernel.threads);
    }
    json.EndObject();
  }
  json.EndArray();
}

void WriteVariant(JsonWriter& json, const OpDescription& op, const VariantDescription& variant) {
  json.BeginObject().Key("id").Text(variant.id).Key("target").Text(variant.target);
  json.Key("template").Text(variant.name).Key("provider").Text(variant.provider);
  json.Key("rank").Unsigned(variant.rank).Key("ran_on").BeginArray();
  for (const std::string& device : variant.ran_on) json.Text(device);
  json.EndArray();
  WriteKernels(json, variant.kernels);
  json.Key("types").BeginObject();
  for (size_t i = 0; i < op.types.size(); ++i) {
    json.Key(op.types[i].name).Text(Name(variant.types[i]));
  }
  json.EndObject();
  const auto promise = [&json](const char* key, const std::optional<std::string_view>& where) {
    where ? json.Key(key).Text(*where) : json.Key(key).Null();
  };
  promise("deterministic", variant.deterministic);
  promise("batch_invariant", variant.batch_invariant);
  json.Key("tunables").BeginObject();
  for (const auto& [name, value] : variant.tunables) json.Key(name).Int(value);
  json.EndObject().EndObject();
}

void WriteOp(JsonWriter& json, const OpDescription& op, Detail detail) {
  json.BeginObject().Key("name").Text(op.name);
  if (detail != Detail::kName) {
    json.Key("summary").Text(op.summary).Key("interface").Text(Hex(op.interface_hash));
    WriteInterface(json, op);
  }
  if (detail == Detail::kWhole) {
    WriteProblems(json, op);
    json.Key("variants").BeginArray();
    for (const VariantDescription& variant : op.variants) WriteVariant(json, op, variant);
    json.EndArray();
  }
  json.EndObject();
}

void WriteParts(JsonWriter& json, const std::vector<PartDescription>& parts) {
  json.Key("parts").BeginArray();
  for (const PartDescription& part : parts) {
    json.BeginObject().Key("path").Text(part.path).Key("content_id").Text(part.content_id);
    json.Key("file_bytes").Unsigned(part.file_bytes).Key("targets").BeginArray();
    for (std::string_view target : part.targets) json.Text(target);
    json.EndArray().EndObject();
  }
  json.EndArray();
}

void WriteBlobs(JsonWriter& json, const std::vector<BlobDescription>& blobs) {
  json.Key("blobs").BeginArray();
  for (const BlobDescription& blob : blobs) {
    json.BeginObject().Key("sha256").Text(ToHex(blob.sha256)).Key("format").Text(blob.format);
    json.Key("part")
        .Unsigned(blob.part)
        .Key("offset")
        .Unsigned(blob.offset)
        .Key("stored_bytes")
        .Unsigned(blob.stored_bytes);
    json.Key("bytes").Unsigned(blob.bytes).Key("base").Int(blob.base).EndObject();
  }
  json.EndArray();
}

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

std::string ToJson(const BundleDescription& description, Detail detail) {
  JsonWriter json;
  json.BeginObject().Key("name").Text(description.name).Key("path").Text(description.path);
  json.Key("content_id").Text(description.content_id);
  json.Key("file_bytes").Unsigned(description.file_bytes).Key("provenance").BeginObject();
  for (const auto& [key, value] : description.provenance) json.Key(key).Text(value);
  json.EndObject();
  WriteParts(json, description.parts);
  WriteAbsent(json, description.absent);
  json.Key("targets").BeginArray();
  for (std::string_view target : description.targets) json.Text(target);
  json.EndArray().Key("devices").BeginArray();
  for (std::string_view device : description.devices) json.Text(device);
  json.EndArray().Key("ops").BeginArray();
  for (const OpDescription& one : description.ops) WriteOp(json, one, detail);
  json.EndArray();
  if (detail == Detail::kWhole) WriteBlobs(json, description.blobs);
  json.EndObject();
  return std::move(json).text();
}

std::string ToJson(const Inference& inference, const Problem& problem) {
  JsonWriter json;
  json.BeginObject().Key("interface").Text(Hex(inference.interface_hash));
  json.Key("results").BeginArray();
  for (const TensorSpec& result : problem.results) {
    json.BeginObject().Key("present").Bool(result.present).Key("dtype").Text(Name(result.dtype));
    json.Key("dims").BeginArray();
    for (int64_t dim : result.dims) json.Int(dim);
    json.EndArray().EndObject();
  }
  json.EndArray().Key("workspace_bytes").Int(inference.workspace_bytes);
  json.Key("empty").Bool(inference.empty);
  WriteCuts(json, inference.cuts);
  json.EndObject();
  return std::move(json).text();
}

}  // namespace

Result<std::string> DescribeJson(const Bundle& bundle, std::string_view op, Detail detail) {
  KB_ASSIGN_OR_RETURN(const BundleDescription description, Describe(bundle, op, detail));
  return ToJson(description, detail);
}

Result<std::string> DescribeJson(const Parts& parts, std::string_view op, Detail detail) {
  KB_ASSIGN_OR_RETURN(const BundleDescription description, Describe(parts, op, detail));
  return ToJson(description, detail);
}

Result<std::string> InferJson(const Bundle& bundle, const Problem& problem, Device::Kind kind) {
  KB_ASSIGN_OR_RETURN(const Inference inference, Infer(bundle, problem, kind));
  return ToJson(inference, problem);
}

Result<std::string> InferJson(const Parts& parts, const Problem& problem, Device::Kind kind) {
  KB_ASSIGN_OR_RETURN(const Inference inference, Infer(parts, problem, kind));
  return ToJson(inference, problem);
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
