#include "kbundle/describe.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "binding.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/json.h"
#include "kbundle/key.h"

namespace kbundle {
namespace {

constexpr uint32_t kNoBlob = 0xffffffff;

std::string_view View(const flatbuffers::String* text) {
  return text ? std::string_view(text->c_str(), text->size()) : std::string_view();
}

// The length of a vector that may be absent.
template <typename Vector>
uint32_t Size(const Vector* vector) {
  return vector ? vector->size() : 0;
}

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

const char* ProviderName(uint8_t provider) {
  switch (static_cast<Provider>(provider)) {
    case Provider::kCuda:
      return "cuda";
    case Provider::kHost:
      return "host";
    case Provider::kTriton:
      return "triton";
    case Provider::kCudnn:
      return "cudnn";
    case Provider::kCublasLt:
      return "cublaslt";
  }
  return "unknown";
}

const char* VmapName(uint8_t rule) {
  switch (static_cast<VmapRule>(rule)) {
    case VmapRule::kLoop:
      return "loop";
    case VmapRule::kLeading:
      return "leading";
    case VmapRule::kNone:
      return "none";
  }
  return "unknown";
}

const char* BlobFormatName(uint32_t format) {
  switch (static_cast<fb::BlobFormat>(format)) {
    case fb::BlobFormat::Cubin:
      return "cubin";
    case fb::BlobFormat::Fatbin:
      return "fatbin";
    case fb::BlobFormat::HostObject:
      return "host object";
    case fb::BlobFormat::ExecutionPlan:
      return "execution plan";
    case fb::BlobFormat::MatmulAlgorithm:
      return "algorithm";
  }
  return "unknown";
}

// A value as a manifest would spell it: enums and dtypes by name.
void WriteAttributeValue(JsonWriter& json, const fb::Attribute& attribute,
                         const flatbuffers::Vector<int64_t>* integers,
                         const flatbuffers::Vector<double>* floats) {
  const auto integer = [&] { return Size(integers) ? integers->Get(0) : 0; };
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kBool:
      json.Bool(integer() != 0);
      return;
    case AttributeType::kInt:
      json.Int(integer());
      return;
    case AttributeType::kFloat:
      json.Number(Size(floats) ? floats->Get(0) : 0);
      return;
    case AttributeType::kDType:
      json.Text(Name(static_cast<DType>(integer())));
      return;
    case AttributeType::kEnum: {
      const auto choice = static_cast<uint64_t>(integer());
      json.Text(choice < Size(attribute.choices()) ? View(attribute.choices()->Get(choice)) : "");
      return;
    }
    case AttributeType::kIntArray:
      json.BeginArray();
      for (uint32_t i = 0; i < Size(integers); ++i) json.Int(integers->Get(i));
      json.EndArray();
      return;
    case AttributeType::kFloatArray:
      json.BeginArray();
      for (uint32_t i = 0; i < Size(floats); ++i) json.Number(floats->Get(i));
      json.EndArray();
      return;
  }
  json.Null();
}

bool HasEllipsis(const fb::Tensor& tensor) {
  for (uint32_t i = 0; i < Size(tensor.dims()); ++i) {
    if (tensor.dims()->Get(i)->ellipsis()) return true;
  }
  return false;
}

void WriteTypes(JsonWriter& json, const fb::Op& op) {
  json.Key("types").BeginArray();
  for (uint32_t i = 0; i < Size(op.types()); ++i) {
    const fb::TypeParam& type = *op.types()->Get(i);
    json.BeginObject().Key("name").Text(View(type.name())).Key("dtypes").BeginArray();
    for (uint8_t dtype : *type.dtypes()) json.Text(Name(static_cast<DType>(dtype)));
    json.EndArray().Key("attribute");
    if (type.attribute() >= 0 && static_cast<uint32_t>(type.attribute()) < Size(op.attributes())) {
      json.Text(View(op.attributes()->Get(type.attribute())->name()));
    } else {
      json.Null();
    }
    json.EndObject();
  }
  json.EndArray();
}

void WriteTensors(JsonWriter& json, const fb::Op& op) {
  json.Key("operands").BeginArray();
  for (uint32_t i = 0; i < Size(op.operands()); ++i) {
    const fb::Tensor& operand = *op.operands()->Get(i);
    json.BeginObject().Key("name").Text(View(operand.name()));
    json.Key("shape").Text(View(operand.text()));
    json.Key("optional").Bool(operand.optional()).Key("strided").Bool(operand.strided());
    json.EndObject();
  }
  json.EndArray().Key("results").BeginArray();
  for (uint32_t i = 0; i < Size(op.results()); ++i) {
    const fb::Tensor& result = *op.results()->Get(i);
    json.BeginObject().Key("name").Text(View(result.name()));
    json.Key("shape").Text(View(result.text())).Key("alias").Int(result.alias());
    json.Key("conditional").Bool(result.when() != nullptr).EndObject();
  }
  json.EndArray().Key("operands_with_ellipsis").BeginArray();
  for (uint32_t i = 0; i < Size(op.operands()); ++i) json.Bool(HasEllipsis(*op.operands()->Get(i)));
  json.EndArray().Key("results_with_ellipsis").BeginArray();
  for (uint32_t i = 0; i < Size(op.results()); ++i) json.Bool(HasEllipsis(*op.results()->Get(i)));
  json.EndArray();
}

void WriteAttributes(JsonWriter& json, const fb::Op& op) {
  json.Key("attributes").BeginArray();
  for (uint32_t i = 0; i < Size(op.attributes()); ++i) {
    const fb::Attribute& attribute = *op.attributes()->Get(i);
    json.BeginObject().Key("name").Text(View(attribute.name()));
    json.Key("type")
        .Text(AttributeTypeName(static_cast<AttributeType>(attribute.type())))
        .Key("default");
    if (attribute.has_default()) {
      WriteAttributeValue(json, attribute, attribute.integers(), attribute.floats());
    } else {
      json.Null();
    }
    json.Key("required").Bool(!attribute.has_default()).Key("choices").BeginArray();
    for (uint32_t c = 0; c < Size(attribute.choices()); ++c) {
      json.Text(View(attribute.choices()->Get(c)));
    }
    json.EndArray().Key("max_len").Unsigned(attribute.max_len()).EndObject();
  }
  json.EndArray();
}

void WriteProblem(JsonWriter& json, const fb::Op& op, const fb::Problem& problem) {
  json.BeginObject().Key("text").Text(View(problem.text())).Key("operands").BeginArray();
  for (uint32_t i = 0; i < Size(problem.operands()); ++i) {
    const fb::ProblemTensor& operand = *problem.operands()->Get(i);
    json.BeginObject().Key("present").Bool(operand.present());
    json.Key("dtype").Text(Name(static_cast<DType>(operand.dtype()))).Key("dims").BeginArray();
    for (uint32_t d = 0; d < Size(operand.dims()); ++d) json.Int(operand.dims()->Get(d));
    json.EndArray().EndObject();
  }
  json.EndArray().Key("attributes").BeginObject();
  for (uint32_t i = 0; i < Size(problem.attributes()); ++i) {
    const fb::AttributeValue& value = *problem.attributes()->Get(i);
    if (value.attribute() >= Size(op.attributes())) continue;
    const fb::Attribute& attribute = *op.attributes()->Get(value.attribute());
    json.Key(View(attribute.name()));
    WriteAttributeValue(json, attribute, value.integers(), value.floats());
  }
  json.EndObject().EndObject();
}

void WriteKernels(JsonWriter& json, const fb::Index& index, const fb::Variant& variant,
                  const fb::Template& source) {
  uint32_t registers = 0;
  int64_t blob = -1;
  for (uint32_t step = Size(source.steps()); step-- > 0;) {
    const fb::Kernel& kernel = *index.kernels()->Get(variant.kernels() + step);
    if (kernel.blob() == kNoBlob) continue;
    registers = std::max(registers, kernel.registers());
    blob = kernel.blob();
  }
  json.Key("registers").Unsigned(registers).Key("blob").Int(blob).Key("kernels").BeginArray();
  for (uint32_t step = 0; step < Size(source.steps()); ++step) {
    const fb::Kernel& kernel = *index.kernels()->Get(variant.kernels() + step);
    json.BeginObject().Key("symbol");
    if (kernel.blob() == kNoBlob) {
      json.Null().Key("blob").Int(-1).EndObject();
      continue;
    }
    json.Text(View(index.symbols()->Get(kernel.symbol()))).Key("blob").Unsigned(kernel.blob());
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
  const fb::Index& index = bundle.index();
  const fb::Variant& variant = *index.variants()->Get(number);
  const fb::Template& source = *index.templates()->Get(variant.template_index());
  const fb::Op& op = *index.ops()->Get(variant.op());
  json.BeginObject().Key("id").Text(bundle.VariantId(number));
  json.Key("target").Text(View(index.targets()->Get(variant.target())->name()));
  json.Key("template").Text(View(source.name()));
  json.Key("provider").Text(ProviderName(source.provider()));
  json.Key("rank").Unsigned(variant.rank()).Key("ran_on").BeginArray();
  for (const std::string& device : RanOn(bundle, number)) json.Text(device);
  json.EndArray();
  WriteKernels(json, index, variant, source);
  json.Key("types").BeginObject();
  for (uint32_t i = 0; i < Size(op.types()); ++i) {
    json.Key(View(op.types()->Get(i)->name()));
    json.Text(Name(TypeAt(variant.types(), static_cast<int>(i))));
  }
  json.EndObject().Key("tunables").BeginObject();
  for (uint32_t i = 0; i < Size(source.tunables()); ++i) {
    json.Key(View(source.tunables()->Get(i)));
    json.Int(index.constants()->Get(variant.tunables() + i));
  }
  json.EndObject().EndObject();
}

// Only of ops that take them.
void WriteScoreMods(JsonWriter& json, const fb::Op& op) {
  if (Size(op.score_mods()) == 0) return;
  json.Key("score_mods").BeginArray();
  for (uint32_t i = 0; i < Size(op.score_mods()); ++i) {
    const fb::ScoreMod& mod = *op.score_mods()->Get(i);
    json.BeginObject().Key("name").Text(View(mod.name())).Key("text").Text(View(mod.text()));
    json.Key("scalars").BeginArray();
    for (uint32_t k = 0; k < Size(mod.scalars()); ++k) json.Text(View(mod.scalars()->Get(k)));
    json.EndArray().Key("tensors").BeginArray();
    for (uint32_t k = 0; k < Size(mod.tensors()); ++k) {
      const fb::ScoreTensor& tensor = *mod.tensors()->Get(k);
      json.BeginObject().Key("name").Text(View(tensor.name()));
      json.Key("dims").Text(View(tensor.dims())).EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray();
}

void WriteOp(JsonWriter& json, const Bundle& bundle, uint32_t number, bool with_variants) {
  const fb::Op& op = bundle.op(number);
  json.BeginObject().Key("name").Text(View(op.name())).Key("summary").Text(View(op.summary()));
  json.Key("interface").Text(Hex(op.interface_hash()));
  WriteTypes(json, op);
  WriteTensors(json, op);
  WriteAttributes(json, op);
  WriteScoreMods(json, op);
  json.Key("vmap").Text(VmapName(op.vmap())).Key("coordinates").BeginArray();
  for (uint32_t i = 0; i < Size(op.coordinates()); ++i) {
    const uint32_t coordinate = op.coordinates()->Get(i), symbols = Size(op.symbols());
    json.Text(View(coordinate < symbols ? op.symbols()->Get(coordinate)
                                        : op.attributes()->Get(coordinate - symbols)->name()));
  }
  json.EndArray().Key("tolerances").BeginArray();
  for (uint32_t i = 0; i < Size(op.tolerances()); ++i) {
    const fb::Tolerance& tolerance = *op.tolerances()->Get(i);
    json.BeginObject().Key("result").Unsigned(tolerance.result()).Key("dtype");
    if (tolerance.dtype() == 0) {
      json.Null();
    } else {
      json.Text(Name(static_cast<DType>(tolerance.dtype())));
    }
    json.Key("ulps").Number(tolerance.ulps()).Key("relative").Number(tolerance.relative());
    json.EndObject();
  }
  json.EndArray().Key("problems").BeginArray();
  for (uint32_t i = 0; i < Size(op.problems()); ++i) WriteProblem(json, op, *op.problems()->Get(i));
  json.EndArray();
  if (with_variants) {
    json.Key("variants").BeginArray();
    const auto* variants = bundle.index().variants();
    for (uint32_t i = 0; i < Size(variants); ++i) {
      if (variants->Get(i)->op() == number) WriteVariant(json, bundle, i);
    }
    json.EndArray();
  }
  json.EndObject();
}

void WriteBlobs(JsonWriter& json, const fb::Index& index) {
  json.Key("blobs").BeginArray();
  for (uint32_t i = 0; i < Size(index.blobs()); ++i) {
    const fb::Blob& blob = *index.blobs()->Get(i);
    json.BeginObject().Key("sha256").Text(Hex(blob.sha256()));
    json.Key("format").Text(BlobFormatName(blob.format()));
    json.Key("offset").Unsigned(blob.offset()).Key("stored_bytes").Unsigned(blob.stored_size());
    json.Key("bytes").Unsigned(blob.size());
    json.Key("base").Int(blob.base() == kNoBlob ? -1 : static_cast<int64_t>(blob.base()));
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace

std::vector<std::string> RanOn(const Bundle& bundle, uint32_t number) {
  const fb::Index& index = bundle.index();
  const fb::Variant& variant = *index.variants()->Get(number);
  const uint32_t steps = Size(index.templates()->Get(variant.template_index())->steps());
  const auto ran = [&](uint32_t blob, uint32_t device) {  // sorted by (blob, device)
    uint32_t low = 0, high = Size(index.ran_on());
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
  for (uint32_t device = 0; device < Size(index.devices()); ++device) {
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

Result<std::string> DescribeJson(const Bundle& bundle, std::string_view op, bool with_variants) {
  uint32_t only = 0;
  if (!op.empty()) {
    KB_ASSIGN_OR_RETURN(only, bundle.FindOp(op));
  }
  const fb::Index& index = bundle.index();
  JsonWriter json;
  json.BeginObject().Key("name").Text(bundle.name()).Key("path").Text(bundle.path());
  json.Key("content_id").Text(bundle.content_id());
  json.Key("file_bytes").Unsigned(bundle.file_size()).Key("provenance").BeginObject();
  for (uint32_t i = 0; i < Size(index.provenance()); ++i) {
    const fb::KeyValue& entry = *index.provenance()->Get(i);
    json.Key(View(entry.key())).Text(View(entry.value()));
  }
  json.EndObject().Key("targets").BeginArray();
  for (uint32_t i = 0; i < Size(index.targets()); ++i)
    json.Text(View(index.targets()->Get(i)->name()));
  json.EndArray().Key("devices").BeginArray();
  for (uint32_t i = 0; i < Size(index.devices()); ++i) json.Text(View(index.devices()->Get(i)));
  json.EndArray().Key("ops").BeginArray();
  for (uint32_t i = 0; i < Size(index.ops()); ++i) {
    if (op.empty() || i == only) WriteOp(json, bundle, i, with_variants);
  }
  json.EndArray();
  if (with_variants) WriteBlobs(json, index);
  json.EndObject();
  return std::move(json).text();
}

Result<std::string> InferJson(const Bundle& bundle, const Problem& problem, Device::Kind kind) {
  KB_ASSIGN_OR_RETURN(const int64_t workspace, MaxWorkspaceBytes(bundle, problem, kind));
  JsonWriter json;
  json.BeginObject().Key("interface").Text(Hex(bundle.op(problem.op).interface_hash()));
  json.Key("results").BeginArray();
  for (const TensorSpec& result : problem.results) {
    json.BeginObject().Key("present").Bool(result.present).Key("dtype").Text(Name(result.dtype));
    json.Key("dims").BeginArray();
    for (int64_t dim : result.dims) json.Int(dim);
    json.EndArray().EndObject();
  }
  json.EndArray().Key("workspace_bytes").Int(workspace);
  json.Key("empty").Bool(problem.AllResultsEmpty()).EndObject();
  return std::move(json).text();
}

std::string StatsJson(const RuntimeStats& stats) {
  JsonWriter json;
  json.BeginObject().Key("plans_made").Unsigned(stats.plans_made);
  json.Key("plans_shared").Unsigned(stats.plans_shared);
  json.Key("objects_loaded").Unsigned(stats.objects_loaded).Key("chosen").BeginArray();
  for (const RuntimeStats::Chosen& row : stats.chosen) {
    json.BeginObject().Key("bundle").Text(row.bundle).Key("op").Text(row.op);
    json.Key("problem").Text(row.problem).Key("variant").Text(row.variant);
    json.Key("choice").Text(row.choice).Key("device").Text(row.device);
    json.Key("reason").Text(row.reason).Key("count").Unsigned(row.count).EndObject();
  }
  json.EndArray().EndObject();
  return std::move(json).text();
}

}  // namespace kbundle
