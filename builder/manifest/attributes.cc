// Attributes and type parameters lean on each other: a type may be chosen by an attribute of type
// dtype, whose default must be one that the type allows. Attributes are read first, then types, and
// only then is that default checked. A value of a problem is read by the same code as a default.
#include <algorithm>

#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/format.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

const std::vector<std::string> kTypeWords = {"bool", "int",   "float",  "dtype",
                                             "enum", "int[]", "float[]"};
constexpr AttributeType kTypeValues[] = {AttributeType::kBool,      AttributeType::kInt,
                                         AttributeType::kFloat,     AttributeType::kDType,
                                         AttributeType::kEnum,      AttributeType::kIntArray,
                                         AttributeType::kFloatArray};

bool IsArray(AttributeType type) {
  return type == AttributeType::kIntArray || type == AttributeType::kFloatArray;
}

const std::string& Describe(AttributeType type) { return kTypeWords[static_cast<int>(type) - 1]; }

void ReadChoices(Fields& fields, Attribute& attribute, const Node& node, Diagnostics& diagnostics) {
  if (attribute.type != AttributeType::kEnum) {
    fields.Refuse("one_of",
                  fmt::format("only an enum has `one_of`; '{}' is of type {}", attribute.name,
                              Describe(attribute.type)),
                  "the dtypes of a type parameter are listed in `types`");
    return;
  }
  for (const Node* choice : fields.TakeTexts("one_of")) {
    auto& choices = attribute.choices;
    if (std::find(choices.begin(), choices.end(), choice->text) != choices.end()) {
      diagnostics.Error(choice->where, fmt::format("the choice '{}' is there twice", choice->text));
    }
    if (choice->text.empty()) diagnostics.Error(choice->where, "this choice has no name");
    choices.push_back(choice->text);
  }
  if (attribute.choices.size() > kMaxSymbols) {
    diagnostics.Error(node.where,
                      fmt::format("enum '{}' has {} choices, allowed are {}", attribute.name,
                                  attribute.choices.size(), kMaxSymbols));
  }
  if (attribute.choices.empty()) {
    diagnostics.Error(node.where,
                      fmt::format("enum '{}' needs `one_of` with its choices", attribute.name),
                      "as in { type = \"enum\", one_of = [\"none\", \"causal\"] }");
  }
}

std::optional<Attribute> ReadAttribute(const Field& field, Diagnostics& diagnostics) {
  if (!WantKind(field.value, Kind::kTable, fmt::format("attribute '{}'", field.key), diagnostics)) {
    return std::nullopt;
  }
  Attribute attribute;
  attribute.name = field.key;
  Fields fields(field.value, fmt::format("attribute '{}'", field.key), diagnostics);
  int before = diagnostics.count();
  if (fields.Has("type")) {
    attribute.type = kTypeValues[fields.TakeWord("type", kTypeWords)];
  } else {
    fields.Require("type", Kind::kString);
  }
  ReadChoices(fields, attribute, field.value, diagnostics);
  if (IsArray(attribute.type)) {
    if (fields.Require("max_len", Kind::kInteger) != nullptr) {
      attribute.max_len =
          static_cast<uint32_t>(fields.TakeInteger("max_len", 1, 1, kMaxAttributeElements));
    }
  } else {
    fields.Refuse("max_len", "only int[] and float[] have `max_len`");
  }
  if (const Node* value = fields.Take("default");
      value != nullptr && diagnostics.count() == before) {
    attribute.has_default =
        ReadAttributeValue(attribute, *value, diagnostics, &attribute.integers, &attribute.floats);
  }
  fields.Finish();
  return attribute;
}

bool ReadDType(const Node& node, Diagnostics& diagnostics, int64_t* out) {
  if (!WantKind(node, Kind::kString, "a dtype", diagnostics)) return false;
  std::optional<DType> dtype = ParseDType(node.text);
  if (dtype) {
    *out = static_cast<int64_t>(*dtype);
    return true;
  }
  std::vector<std::string> known;
  for (int i = 1; i < kDTypeCount; ++i) known.emplace_back(Name(static_cast<DType>(i)));
  std::string nearest = NearestName(node.text, known);
  diagnostics.Error(node.At(0, static_cast<int>(node.text.size())),
                    fmt::format("'{}' is no dtype", node.text),
                    fmt::format("{}dtypes: {}",
                                nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                                fmt::join(known, ", ")));
  return false;
}

bool ReadChoice(const Attribute& attribute, const Node& node, Diagnostics& diagnostics,
                int64_t* out) {
  if (!WantKind(node, Kind::kString, fmt::format("'{}'", attribute.name), diagnostics))
    return false;
  auto found = std::find(attribute.choices.begin(), attribute.choices.end(), node.text);
  *out = found - attribute.choices.begin();
  if (found != attribute.choices.end()) return true;
  diagnostics.Error(node.where,
                    fmt::format("enum '{}' has no choice '{}'", attribute.name, node.text),
                    fmt::format("it has: {}", fmt::join(attribute.choices, ", ")));
  return false;
}

// One bool, int, float or array element.
bool ReadScalar(AttributeType type, const Node& node, Diagnostics& diagnostics,
                std::vector<int64_t>* integers, std::vector<double>* floats) {
  bool floating = type == AttributeType::kFloat || type == AttributeType::kFloatArray;
  if (floating && node.Is(Kind::kInteger)) {
    floats->push_back(node.number);
    return true;
  }
  Kind kind = floating ? Kind::kFloat : type == AttributeType::kBool ? Kind::kBool : Kind::kInteger;
  if (!WantKind(node, kind, fmt::format("a value of type {}", Describe(type)), diagnostics)) {
    return false;
  }
  if (floating) {
    floats->push_back(node.number);
  } else {
    integers->push_back(node.integer);
  }
  return true;
}

bool ReadTypeParam(const Node& node, TypeParam& param, const Op& op, Diagnostics& diagnostics) {
  const Node* dtypes = &node;
  if (node.Is(Kind::kTable)) {
    Fields fields(node, fmt::format("type parameter '{}'", param.name), diagnostics);
    const Node* attribute = fields.Require("attribute", Kind::kString);
    dtypes = fields.Require("one_of", Kind::kArray);
    fields.Finish();
    if (attribute == nullptr || dtypes == nullptr) return false;
    std::vector<std::string> known;
    for (size_t i = 0; i < op.attributes.size(); ++i) {
      if (op.attributes[i].type != AttributeType::kDType) continue;
      known.push_back(op.attributes[i].name);
      if (known.back() == attribute->text) param.attribute = static_cast<int>(i);
    }
    if (param.attribute < 0) {
      diagnostics.Error(
          attribute->where, fmt::format("'{}' is no attribute of type dtype", attribute->text),
          known.empty()
              ? fmt::format("add attributes = {{ {} = {{ type = \"dtype\" }} }}", attribute->text)
              : fmt::format("there is: {}", fmt::join(known, ", ")));
      return false;
    }
  } else if (!WantKind(node, Kind::kArray, fmt::format("type parameter '{}'", param.name),
                       diagnostics)) {
    return false;
  }
  for (const Node& item : dtypes->items) {
    int64_t dtype = 0;
    if (!ReadDType(item, diagnostics, &dtype)) continue;
    DType value = static_cast<DType>(dtype);
    if (std::find(param.dtypes.begin(), param.dtypes.end(), value) != param.dtypes.end()) {
      diagnostics.Error(item.where, fmt::format("'{}' is there twice", item.text));
      continue;
    }
    param.dtypes.push_back(value);
  }
  if (dtypes->items.empty()) {
    diagnostics.Error(dtypes->where, fmt::format("type parameter '{}' has no dtype", param.name));
  }
  return !param.dtypes.empty();
}

// A default that no type parameter allows would make every call that relies on it fail.
void CheckDTypeDefault(const TypeParam& param, const Op& op, const Node& node,
                       Diagnostics& diagnostics) {
  if (param.attribute < 0) return;
  const Attribute& attribute = op.attributes[param.attribute];
  if (!attribute.has_default) return;
  DType value = static_cast<DType>(attribute.integers[0]);
  if (std::find(param.dtypes.begin(), param.dtypes.end(), value) != param.dtypes.end()) return;
  diagnostics.Error(node.where, fmt::format("'{}' allows no {}, the default of its attribute '{}'",
                                            param.name, Name(value), attribute.name));
}

}  // namespace

bool ReadAttributeValue(const Attribute& attribute, const Node& node, Diagnostics& diagnostics,
                        std::vector<int64_t>* integers, std::vector<double>* floats) {
  if (attribute.type == AttributeType::kDType || attribute.type == AttributeType::kEnum) {
    int64_t value = 0;
    bool ok = attribute.type == AttributeType::kDType
                  ? ReadDType(node, diagnostics, &value)
                  : ReadChoice(attribute, node, diagnostics, &value);
    if (ok) integers->push_back(value);
    return ok;
  }
  if (!IsArray(attribute.type)) {
    return ReadScalar(attribute.type, node, diagnostics, integers, floats);
  }
  if (!WantKind(node, Kind::kArray, fmt::format("'{}'", attribute.name), diagnostics)) return false;
  if (node.items.size() > attribute.max_len) {
    diagnostics.Error(node.where,
                      fmt::format("'{}' has {} elements, allowed are {}", attribute.name,
                                  node.items.size(), attribute.max_len),
                      "raise its `max_len`");
    return false;
  }
  bool ok = true;
  for (const Node& item : node.items) {
    ok = ReadScalar(attribute.type, item, diagnostics, integers, floats) && ok;
  }
  return ok;
}

void ReadAttributes(Fields& fields, Op& op, Names& names, Diagnostics& diagnostics) {
  const Node* table = fields.Take("attributes", Kind::kTable);
  if (table == nullptr) return;
  if (table->fields.size() > kMaxAttributes) {
    diagnostics.Error(table->where, fmt::format("{} attributes, allowed are {}",
                                                table->fields.size(), kMaxAttributes));
    return;
  }
  for (const Field& field : table->fields) {
    std::optional<Attribute> attribute = ReadAttribute(field, diagnostics);
    if (!attribute) continue;
    Entity entity{Entity::Kind::kAttribute, static_cast<int>(op.attributes.size()), {}, {}};
    std::string clash = names.Declare(field.key, entity);
    if (!clash.empty()) diagnostics.Error(field.where, clash);
    op.attributes.push_back(std::move(*attribute));
  }
}

void ReadTypes(Fields& fields, Op& op, Names& names, Diagnostics& diagnostics) {
  const Node* table = fields.Take("types", Kind::kTable);
  if (table == nullptr) return;
  if (table->fields.size() > kMaxTypeParams) {
    diagnostics.Error(table->where, fmt::format("{} type parameters, allowed are {}",
                                                table->fields.size(), kMaxTypeParams));
    return;
  }
  for (const Field& field : table->fields) {
    TypeParam param;
    param.name = field.key;
    if (ReadTypeParam(field.value, param, op, diagnostics)) {
      CheckDTypeDefault(param, op, field.value, diagnostics);
    }
    Entity entity{Entity::Kind::kTypeParam, static_cast<int>(op.types.size()), {}, {}};
    std::string clash = names.Declare(field.key, entity);
    if (!clash.empty()) diagnostics.Error(field.where, clash);
    op.types.push_back(std::move(param));
  }
}

}  // namespace kbundle::builder
