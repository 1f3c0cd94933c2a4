// An op's interface as JSON: enough to call it, without the bundle's rows.
#include "loader/describe/describe_op.h"

#include "kbundle/key.h"
#include "loader/bind/binding.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

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

// A value as a manifest would spell it: enums and dtypes by name.
void WriteAttributeValue(JsonWriter& json, const fb::Attribute& attribute,
                         const flatbuffers::Vector<int64_t>* integers,
                         const flatbuffers::Vector<double>* floats) {
  const auto integer = [&] { return Count(integers) ? integers->Get(0) : 0; };
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kBool:
      json.Bool(integer() != 0);
      return;
    case AttributeType::kInt:
      json.Int(integer());
      return;
    case AttributeType::kFloat:
      json.Number(Count(floats) ? floats->Get(0) : 0);
      return;
    case AttributeType::kDType:
      json.Text(Name(static_cast<DType>(integer())));
      return;
    case AttributeType::kEnum: {
      const auto choice = static_cast<uint64_t>(integer());
      json.Text(choice < Count(attribute.choices()) ? View(attribute.choices()->Get(choice)) : "");
      return;
    }
    case AttributeType::kIntArray:
      json.BeginArray();
      for (uint32_t i = 0; i < Count(integers); ++i) json.Int(integers->Get(i));
      json.EndArray();
      return;
    case AttributeType::kFloatArray:
      json.BeginArray();
      for (uint32_t i = 0; i < Count(floats); ++i) json.Number(floats->Get(i));
      json.EndArray();
      return;
  }
  json.Null();
}

// Which dims stand for any number of them, and how many terms stand before: a batch that joins
// them goes there.
void WriteEllipsis(JsonWriter& json, const fb::Op& op, const fb::Tensor& tensor) {
  json.Key("ellipsis");
  for (uint32_t i = 0; i < Count(tensor.dims()); ++i) {
    const fb::Dim& dim = *tensor.dims()->Get(i);
    if (dim.ellipsis() == 0) continue;
    json.BeginObject().Key("name").Text(View(op.symbols()->Get(dim.symbol())));
    json.Key("axis").Unsigned(i).EndObject();
    return;
  }
  json.Null();
}

void WriteTypes(JsonWriter& json, const fb::Op& op) {
  json.Key("types").BeginArray();
  for (uint32_t i = 0; i < Count(op.types()); ++i) {
    const fb::TypeParam& type = *op.types()->Get(i);
    json.BeginObject().Key("name").Text(View(type.name())).Key("dtypes").BeginArray();
    for (uint8_t dtype : *type.dtypes()) json.Text(Name(static_cast<DType>(dtype)));
    json.EndArray().Key("attribute");
    if (type.attribute() >= 0 && static_cast<uint32_t>(type.attribute()) < Count(op.attributes())) {
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
  for (uint32_t i = 0; i < Count(op.operands()); ++i) {
    const fb::Tensor& operand = *op.operands()->Get(i);
    json.BeginObject().Key("name").Text(View(operand.name()));
    json.Key("shape").Text(View(operand.text()));
    json.Key("optional").Bool(operand.optional()).Key("strided").Bool(operand.strided());
    WriteEllipsis(json, op, operand);
    json.EndObject();
  }
  json.EndArray().Key("results").BeginArray();
  for (uint32_t i = 0; i < Count(op.results()); ++i) {
    const fb::Tensor& result = *op.results()->Get(i);
    json.BeginObject().Key("name").Text(View(result.name()));
    json.Key("shape").Text(View(result.text())).Key("alias").Int(result.alias());
    json.Key("conditional").Bool(result.when() != nullptr);
    WriteEllipsis(json, op, result);
    json.EndObject();
  }
  json.EndArray();
}

void WriteAttributes(JsonWriter& json, const fb::Op& op) {
  json.Key("attributes").BeginArray();
  for (uint32_t i = 0; i < Count(op.attributes()); ++i) {
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
    for (uint32_t c = 0; c < Count(attribute.choices()); ++c) {
      json.Text(View(attribute.choices()->Get(c)));
    }
    json.EndArray().Key("max_len").Unsigned(attribute.max_len()).EndObject();
  }
  json.EndArray();
}

void WriteProblem(JsonWriter& json, const fb::Op& op, const fb::Problem& problem) {
  json.BeginObject().Key("text").Text(View(problem.text())).Key("operands").BeginArray();
  for (uint32_t i = 0; i < Count(problem.operands()); ++i) {
    const fb::ProblemTensor& operand = *problem.operands()->Get(i);
    json.BeginObject().Key("present").Bool(operand.present());
    json.Key("dtype").Text(Name(static_cast<DType>(operand.dtype()))).Key("dims").BeginArray();
    for (uint32_t d = 0; d < Count(operand.dims()); ++d) json.Int(operand.dims()->Get(d));
    json.EndArray().EndObject();
  }
  json.EndArray().Key("attributes").BeginObject();
  for (uint32_t i = 0; i < Count(problem.attributes()); ++i) {
    const fb::AttributeValue& value = *problem.attributes()->Get(i);
    if (value.attribute() >= Count(op.attributes())) continue;
    const fb::Attribute& attribute = *op.attributes()->Get(value.attribute());
    json.Key(View(attribute.name()));
    WriteAttributeValue(json, attribute, value.integers(), value.floats());
  }
  json.EndObject().EndObject();
}

// Only of ops that have any.
void WriteExpressions(JsonWriter& json, const fb::Op& op) {
  if (Count(op.expressions()) == 0) return;
  json.Key("expressions").BeginArray();
  for (uint32_t i = 0; i < Count(op.expressions()); ++i) {
    const fb::Expression& one = *op.expressions()->Get(i);
    json.BeginObject().Key("attribute");
    json.Text(View(op.attributes()->Get(one.attribute())->name()));
    json.Key("name").Text(View(one.name())).Key("text").Text(View(one.text()));
    json.Key("scalars").BeginArray();
    for (uint32_t k = 0; k < Count(one.scalars()); ++k) json.Text(View(one.scalars()->Get(k)));
    json.EndArray().Key("tensors").BeginArray();
    for (uint32_t k = 0; k < Count(one.tensors()); ++k) {
      const fb::ExpressionTensor& tensor = *one.tensors()->Get(k);
      json.BeginObject().Key("name").Text(View(tensor.name()));
      json.Key("dims").Text(View(tensor.dims())).EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray();
}

}  // namespace

void WriteInterface(JsonWriter& json, const fb::Op& op) {
  WriteTypes(json, op);
  WriteTensors(json, op);
  WriteAttributes(json, op);
  WriteExpressions(json, op);
  json.Key("vmap").Text(VmapName(op.vmap())).Key("coordinates").BeginArray();
  for (uint32_t i = 0; i < Count(op.coordinates()); ++i) {
    const uint32_t coordinate = op.coordinates()->Get(i), symbols = Count(op.symbols());
    json.Text(View(coordinate < symbols ? op.symbols()->Get(coordinate)
                                        : op.attributes()->Get(coordinate - symbols)->name()));
  }
  json.EndArray().Key("tolerances").BeginArray();
  for (uint32_t i = 0; i < Count(op.tolerances()); ++i) {
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
  json.EndArray();
}

void WriteProblems(JsonWriter& json, const fb::Op& op) {
  json.Key("problems").BeginArray();
  for (uint32_t i = 0; i < Count(op.problems()); ++i)
    WriteProblem(json, op, *op.problems()->Get(i));
  json.EndArray();
}

}  // namespace kbundle
