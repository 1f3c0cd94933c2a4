// JSON's values are looser than the interface's: a text may be a dtype, a choice or an infinity, an
// integer a float. Here they only become a request; the bundle's MakeProblem, as for every caller,
// says whether it is a problem of the op.
#include "builder/problem/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kbundle/bundle_generated.h"
#include "kbundle/nearest.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// JSON has no infinities; texts stand for them.
Json NumberToJson(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

AttributeValue ArrayFromJson(const Json& json) {
  AttributeValue value;
  bool integers = true;
  for (const Json& item : json) integers &= item.is_number_integer();
  value.kind = integers ? AttributeValue::Kind::kIntArray : AttributeValue::Kind::kFloatArray;
  for (const Json& item : json) {
    if (integers) value.integers.push_back(item.get<int64_t>());
    if (!integers) value.numbers.push_back(item.is_number() ? item.get<double>() : NAN);
  }
  return value;
}

Result<AttributeValue> AttributeFromJson(const std::string& name, const Json& json) {
  AttributeValue value;
  if (json.is_boolean()) {
    value.kind = AttributeValue::Kind::kBool;
    value.integer = json.get<bool>();
  } else if (json.is_number_integer()) {
    value.kind = AttributeValue::Kind::kInt;
    value.integer = json.get<int64_t>();
  } else if (json.is_number()) {
    value.kind = AttributeValue::Kind::kFloat;
    value.number = json.get<double>();
  } else if (json.is_string()) {
    value = ParseAttributeValue(json.get<std::string>());
  } else if (json.is_array()) {
    return ArrayFromJson(json);
  } else {
    return InvalidArgument(
        fmt::format("attribute {}: {} is no bool, number, text or array", name, json.dump()));
  }
  return value;
}

Status SetOperands(const fb::Op& op, const Json& json, ProblemSpec* spec) {
  std::vector<std::string> names;
  for (uint32_t i = 0; op.operands() && i < op.operands()->size(); ++i) {
    names.push_back(op.operands()->Get(i)->name()->str());
  }
  spec->operands.resize(names.size());
  for (TensorSpec& operand : spec->operands) operand.present = false;
  for (const auto& [name, text] : json.items()) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return InvalidArgument(
          fmt::format("operand {}: the op has none of that name{}", name, DidYouMean(name, names)));
    }
    if (!text.is_string()) {
      return InvalidArgument(
          fmt::format("operand {}: {} is no text like \"bf16[4,2048]\"", name, text.dump()));
    }
    KB_ASSIGN_OR_RETURN(spec->operands[static_cast<size_t>(found - names.begin())],
                        ParseTensorSpec(text.get<std::string>()));
  }
  return Status();
}

Json AttributeToJson(const fb::Attribute& attribute, const Problem::Attribute& value) {
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kBool:
      return value.integer != 0;
    case AttributeType::kDType:
      return Name(static_cast<DType>(value.integer));
    case AttributeType::kEnum:
      return attribute.choices()->Get(static_cast<uint32_t>(value.integer))->str();
    case AttributeType::kFloat:
      return NumberToJson(value.number);
    case AttributeType::kIntArray:
      return value.integers;
    case AttributeType::kFloatArray: {
      Json array = Json::array();
      for (double number : value.numbers) array.push_back(NumberToJson(number));
      return array;
    }
    default:
      return value.integer;
  }
}

}  // namespace

Result<Problem> ProblemFromJson(const Bundle& bundle, const Json& json) {
  const auto wrong = [](const std::string& what) {
    return InvalidArgument("reading a problem: " + what +
                           "; wanted: {\"op\": \"family.op\", \"operands\": {\"x\": \"f32[4]\"}, "
                           "\"attributes\": {}}");
  };
  if (!json.is_object()) return wrong("it is no object");
  const auto op = json.find("op");
  if (op == json.end() || !op->is_string()) return wrong("no text \"op\"");
  KB_ASSIGN_OR_RETURN(const uint32_t number, bundle.FindOp(op->get<std::string>()));
  ProblemSpec spec;
  const Json operands = json.value("operands", Json::object());
  const Json attributes = json.value("attributes", Json::object());
  if (!operands.is_object() || !attributes.is_object()) {
    return wrong("\"operands\" or \"attributes\" is no object");
  }
  KB_RETURN_IF_ERROR(SetOperands(OpOf(bundle, number), operands, &spec));
  for (const auto& [name, value] : attributes.items()) {
    KB_ASSIGN_OR_RETURN(AttributeValue attribute, AttributeFromJson(name, value));
    spec.attributes.emplace_back(name, std::move(attribute));
  }
  return bundle.MakeProblem(op->get<std::string>(), spec);
}

Json AttributesToJson(const Bundle& bundle, const Problem& problem) {
  Json json = Json::object();
  const auto* attributes = OpOf(bundle, problem.op).attributes();
  for (uint32_t i = 0; attributes && i < attributes->size(); ++i) {
    const fb::Attribute& attribute = *attributes->Get(i);
    json[attribute.name()->str()] = AttributeToJson(attribute, problem.attributes[i]);
  }
  return json;
}

Json ProblemToJson(const Bundle& bundle, const Problem& problem) {
  Json operands = Json::object();
  const auto* names = OpOf(bundle, problem.op).operands();
  for (size_t i = 0; i < problem.operands.size(); ++i) {
    if (!problem.operands[i].present) continue;
    operands[names->Get(static_cast<uint32_t>(i))->name()->str()] = problem.operands[i].ToString();
  }
  return {{"op", problem.op_name},
          {"operands", std::move(operands)},
          {"attributes", AttributesToJson(bundle, problem)}};
}

}  // namespace kbundle::builder
