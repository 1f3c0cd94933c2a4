// A value is written by its kind, choices and dtypes by name, so that what is read here can be
// sent back as a request.
#include "loader/describe/op_json.h"

#include "loader/bind/binding.h"

namespace kbundle {
namespace {

const char* VmapName(VmapRule rule) {
  switch (rule) {
    case VmapRule::kLoop:
      return "loop";
    case VmapRule::kLeading:
      return "leading";
    case VmapRule::kNone:
      return "none";
  }
  return "unknown";
}

void WriteTexts(JsonWriter& json, const std::vector<std::string_view>& texts) {
  json.BeginArray();
  for (std::string_view text : texts) json.Text(text);
  json.EndArray();
}

void WriteValue(JsonWriter& json, const AttributeValue& value) {
  switch (value.kind) {
    case AttributeValue::Kind::kBool:
      json.Bool(value.integer != 0);
      return;
    case AttributeValue::Kind::kInt:
      json.Int(value.integer);
      return;
    case AttributeValue::Kind::kFloat:
      json.Number(value.number);
      return;
    case AttributeValue::Kind::kText:
      json.Text(value.text);
      return;
    case AttributeValue::Kind::kIntArray:
      json.BeginArray();
      for (int64_t integer : value.integers) json.Int(integer);
      json.EndArray();
      return;
    case AttributeValue::Kind::kFloatArray:
      json.BeginArray();
      for (double number : value.numbers) json.Number(number);
      json.EndArray();
      return;
  }
  json.Null();
}

void WriteEllipsis(JsonWriter& json, const std::optional<EllipsisDescription>& ellipsis) {
  json.Key("ellipsis");
  if (ellipsis) {
    json.BeginObject().Key("name").Text(ellipsis->name);
    json.Key("axis").Unsigned(ellipsis->axis).EndObject();
  } else {
    json.Null();
  }
}

void WriteTypes(JsonWriter& json, const OpDescription& op) {
  json.Key("types").BeginArray();
  for (const TypeDescription& type : op.types) {
    json.BeginObject().Key("name").Text(type.name).Key("dtypes").BeginArray();
    for (DType dtype : type.dtypes) json.Text(Name(dtype));
    json.EndArray().Key("attribute");
    type.attribute.empty() ? json.Null() : json.Text(type.attribute);
    json.EndObject();
  }
  json.EndArray();
}

void WriteTensors(JsonWriter& json, const OpDescription& op) {
  json.Key("operands").BeginArray();
  for (const TensorDescription& operand : op.operands) {
    json.BeginObject().Key("name").Text(operand.name).Key("shape").Text(operand.shape);
    json.Key("optional").Bool(operand.optional).Key("strided").Bool(operand.strided);
    WriteEllipsis(json, operand.ellipsis);
    json.EndObject();
  }
  json.EndArray().Key("results").BeginArray();
  for (const TensorDescription& result : op.results) {
    json.BeginObject().Key("name").Text(result.name).Key("shape").Text(result.shape);
    json.Key("alias").Int(result.alias).Key("conditional").Bool(result.conditional);
    WriteEllipsis(json, result.ellipsis);
    json.EndObject();
  }
  json.EndArray();
}

void WriteAttributes(JsonWriter& json, const OpDescription& op) {
  json.Key("attributes").BeginArray();
  for (const AttributeDescription& attribute : op.attributes) {
    json.BeginObject().Key("name").Text(attribute.name);
    json.Key("type").Text(AttributeTypeName(attribute.type)).Key("default");
    attribute.value ? WriteValue(json, *attribute.value) : void(json.Null());
    json.Key("required").Bool(!attribute.value).Key("choices");
    WriteTexts(json, attribute.choices);
    json.Key("max_len").Unsigned(attribute.most_elements).EndObject();
  }
  json.EndArray();
}

void WriteProblem(JsonWriter& json, const ProblemDescription& problem) {
  json.BeginObject().Key("text").Text(problem.text).Key("operands").BeginArray();
  for (const TensorSpec& operand : problem.operands) {
    json.BeginObject().Key("present").Bool(operand.present);
    json.Key("dtype").Text(Name(operand.dtype)).Key("dims").BeginArray();
    for (int64_t dim : operand.dims) json.Int(dim);
    json.EndArray().EndObject();
  }
  json.EndArray().Key("attributes").BeginObject();
  for (const auto& [name, value] : problem.attributes) WriteValue(json.Key(name), value);
  json.EndObject().EndObject();
}

// Only of ops that have any.
void WriteExpressions(JsonWriter& json, const OpDescription& op) {
  if (op.expressions.empty()) return;
  json.Key("expressions").BeginArray();
  for (const ExpressionDescription& one : op.expressions) {
    json.BeginObject().Key("attribute").Text(one.attribute);
    json.Key("name").Text(one.name).Key("text").Text(one.text).Key("scalars");
    WriteTexts(json, one.scalars);
    json.Key("tensors").BeginArray();
    for (const auto& [name, dims] : one.tensors) {
      json.BeginObject().Key("name").Text(name).Key("dims").Text(dims).EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray();
}

}  // namespace

void WriteInterface(JsonWriter& json, const OpDescription& op) {
  WriteTypes(json, op);
  WriteTensors(json, op);
  WriteAttributes(json, op);
  WriteExpressions(json, op);
  json.Key("vmap").Text(VmapName(op.vmap)).Key("coordinates");
  WriteTexts(json, op.coordinates);
  json.Key("tolerances").BeginArray();
  for (const ToleranceDescription& tolerance : op.tolerances) {
    json.BeginObject().Key("result").Unsigned(tolerance.result).Key("dtype");
    tolerance.dtype == DType::kInvalid ? json.Null() : json.Text(Name(tolerance.dtype));
    json.Key("ulps").Number(tolerance.ulps).Key("relative").Number(tolerance.relative);
    json.EndObject();
  }
  json.EndArray();
}

void WriteProblems(JsonWriter& json, const OpDescription& op) {
  json.Key("problems").BeginArray();
  for (const ProblemDescription& problem : op.problems) WriteProblem(json, problem);
  json.EndArray();
}

void WriteAbsent(JsonWriter& json, const std::vector<AbsentPart>& absent) {
  json.Key("absent").BeginArray();
  for (const AbsentPart& part : absent) {
    json.BeginObject().Key("target").Text(part.target.ToString());
    json.Key("how").Text(part.how).EndObject();
  }
  json.EndArray();
}

}  // namespace kbundle
