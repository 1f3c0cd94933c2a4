// A request's attributes, as callers spell them, become the op's: converted where nothing is lost,
// refused by name where something would be, defaults filled in. Nothing is guessed from text.
#include <fmt/format.h>

#include <algorithm>

#include "kbundle/nearest.h"
#include "loader/bind/binding.h"
#include "loader/support/absent.h"
#include "loader/support/annotate.h"

namespace kbundle {
const char* AttributeTypeName(AttributeType type) {
  switch (type) {
    case AttributeType::kBool:
      return "bool";
    case AttributeType::kInt:
      return "int";
    case AttributeType::kFloat:
      return "float";
    case AttributeType::kDType:
      return "dtype";
    case AttributeType::kEnum:
      return "enum";
    case AttributeType::kIntArray:
      return "int[]";
    case AttributeType::kFloatArray:
      return "float[]";
  }
  return "?";
}

namespace {

using Kind = AttributeValue::Kind;

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "text";
    case Kind::kIntArray:
      return "int[]";
    case Kind::kFloatArray:
      return "float[]";
  }
  return "?";
}

const char* HowToWrite(AttributeType type) {
  switch (type) {
    case AttributeType::kBool:
      return "true, false, 1 or 0";
    case AttributeType::kInt:
      return "digits, as in -3, within 64 bits";
    case AttributeType::kFloat:
      return "a number that a double holds, as in 0.125 or 1e-5";
    case AttributeType::kDType:
      return "a dtype, as in bf16";
    case AttributeType::kEnum:
      return "one of its choices";
    case AttributeType::kIntArray:
      return "integers in brackets, as in [1,2] or []";
    case AttributeType::kFloatArray:
      return "numbers in brackets, as in [0.5,2] or []";
  }
  return "";
}

Status Mistyped(AttributeType wanted, const AttributeValue& given) {
  return InvalidArgument(fmt::format("{} {} given, it is of type {}: write {}",
                                     KindName(given.kind), given.ToString(),
                                     AttributeTypeName(wanted), HowToWrite(wanted)));
}

std::vector<std::string> Choices(const fb::Attribute& attribute) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < Count(attribute.choices()); ++i) {
    names.push_back(attribute.choices()->Get(i)->str());
  }
  return names;
}

Status ConvertEnum(const fb::Attribute& attribute, const std::string& text, int64_t* value) {
  const std::vector<std::string> names = Choices(attribute);
  const auto found = std::find(names.begin(), names.end(), text);
  *value = found - names.begin();
  if (found != names.end()) return Status();
  return InvalidArgument(
      fmt::format("'{}' is none of {}{}", text, fmt::join(names, ", "), DidYouMean(text, names)));
}

Status ConvertDType(const std::string& text, int64_t* value) {
  const auto dtype = ParseDType(text);
  if (!dtype)
    return InvalidArgument(fmt::format("'{}' is no dtype: write f32, bf16, e4m3, ..", text));
  *value = static_cast<int64_t>(*dtype);
  return Status();
}

// Integers that a double cannot hold would change silently.
Status ToDouble(int64_t integer, double* number) {
  constexpr int64_t kExact = int64_t{1} << 53;  // up to here a double holds every integer
  *number = static_cast<double>(integer);
  if (integer >= -kExact && integer <= kExact) return Status();
  return InvalidArgument(fmt::format("{} has no exact value as a float", integer));
}

Status ConvertArray(const fb::Attribute& attribute, const AttributeValue& given,
                    Problem::Attribute* value) {
  const size_t count = std::max(given.integers.size(), given.numbers.size());
  if (count > attribute.max_len()) {
    return InvalidArgument(
        fmt::format("{} elements given, at most {} are allowed", count, attribute.max_len()));
  }
  if (static_cast<AttributeType>(attribute.type()) == AttributeType::kIntArray) {
    if (given.kind != Kind::kIntArray && count != 0)
      return Mistyped(AttributeType::kIntArray, given);
    value->integers = given.integers;
    return Status();
  }
  value->numbers = given.numbers;
  for (int64_t integer : given.integers) {
    KB_RETURN_IF_ERROR(ToDouble(integer, &value->numbers.emplace_back()));
  }
  return Status();
}

Status Convert(const fb::Attribute& attribute, const AttributeValue& given,
               Problem::Attribute* value) {
  const auto type = static_cast<AttributeType>(attribute.type());
  const bool array_given = given.kind == Kind::kIntArray || given.kind == Kind::kFloatArray;
  switch (type) {
    case AttributeType::kBool:
      if (given.kind != Kind::kBool && !(given.kind == Kind::kInt && (given.integer | 1) == 1))
        break;
      value->integer = given.integer != 0;
      return Status();
    case AttributeType::kInt:
      if (given.kind != Kind::kInt) break;
      value->integer = given.integer;
      return Status();
    case AttributeType::kFloat:
      if (given.kind == Kind::kInt) return ToDouble(given.integer, &value->number);
      if (given.kind != Kind::kFloat) break;
      value->number = given.number;
      return Status();
    case AttributeType::kDType:
      if (given.kind == Kind::kText) return ConvertDType(given.text, &value->integer);
      break;
    case AttributeType::kEnum:
      if (given.kind == Kind::kText) return ConvertEnum(attribute, given.text, &value->integer);
      break;
    case AttributeType::kIntArray:
    case AttributeType::kFloatArray:
      if (array_given) return ConvertArray(attribute, given, value);
      break;
  }
  return Mistyped(type, given);
}

void SetDefault(const fb::Attribute& attribute, Problem::Attribute* value) {
  const auto* integers = attribute.integers();
  const auto* floats = attribute.floats();
  switch (static_cast<AttributeType>(attribute.type())) {
    case AttributeType::kFloat:
      value->number = floats->Get(0);
      break;
    case AttributeType::kIntArray:
      for (uint32_t i = 0; i < Count(integers); ++i) value->integers.push_back(integers->Get(i));
      break;
    case AttributeType::kFloatArray:
      for (uint32_t i = 0; i < Count(floats); ++i) value->numbers.push_back(floats->Get(i));
      break;
    default:
      value->integer = integers->Get(0);
  }
}

std::vector<std::string> AttributeNames(const fb::Op& op) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < Count(op.attributes()); ++i) {
    names.push_back(op.attributes()->Get(i)->name()->str());
  }
  return names;
}

}  // namespace

Status BindAttributes(const fb::Op& op, const ProblemSpec& spec, Problem* problem) {
  const std::vector<std::string> names = AttributeNames(op);
  problem->attributes.resize(names.size());
  std::vector<bool> given(names.size());
  for (const auto& [name, value] : spec.attributes) {
    const size_t i = std::find(names.begin(), names.end(), name) - names.begin();
    if (i == names.size()) {
      return InvalidArgument(
          fmt::format("attribute '{}' does not exist{}; it has: {}", name, DidYouMean(name, names),
                      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    if (given[i]) return InvalidArgument(fmt::format("attribute '{}' is given twice", name));
    given[i] = true;
    KB_VERIFY(
        Convert(*op.attributes()->Get(static_cast<uint32_t>(i)), value, &problem->attributes[i]),
        "attribute '{}'", name);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (given[i]) continue;
    const fb::Attribute& attribute = *op.attributes()->Get(static_cast<uint32_t>(i));
    if (!attribute.has_default()) {
      return InvalidArgument(
          fmt::format("attribute '{}' of type {} is missing and has no default", names[i],
                      AttributeTypeName(static_cast<AttributeType>(attribute.type()))));
    }
    SetDefault(attribute, &problem->attributes[i]);
  }
  return Status();
}

}  // namespace kbundle
