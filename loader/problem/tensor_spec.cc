// TensorSpec, AttributeValue and Problem as values: sizes and text.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kbundle/problem.h"

namespace kbundle {
namespace {

// Saturates: a product that does not fit is larger than anything anybody can allocate.
int64_t SaturatingProduct(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return !text.empty() && error == std::errc() && stop == end;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "[1, 2]" -> "1", "2"; false when it is no list.
bool SplitList(std::string_view text, std::vector<std::string_view>* items,
               std::string_view brackets = "[]") {
  if (text.size() < 2 || text.front() != brackets[0] || text.back() != brackets[1]) return false;
  text = Trim(text.substr(1, text.size() - 2));
  while (!text.empty()) {
    const size_t comma = text.find(',');
    items->push_back(Trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    text = text.substr(comma + 1);
    if (Trim(text).empty()) return false;
  }
  return true;
}

Status ParseNumbers(std::string_view whole, const char* what,
                    const std::vector<std::string_view>& items, std::vector<int64_t>* numbers) {
  for (std::string_view item : items) {
    int64_t number;
    if (!ParseNumber(item, &number) || number < 0) {
      return InvalidArgument(
          fmt::format("'{}': {} '{}' is no number from 0 up", whole, what, item));
    }
    numbers->push_back(number);
  }
  return Status();
}

}  // namespace

int64_t TensorSpec::elements() const {
  if (!present) return 0;
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim == 0) return 0;
  }
  for (int64_t dim : dims) product = SaturatingProduct(product, dim);
  return product;
}

int64_t TensorSpec::size_bytes() const { return SaturatingProduct(elements(), SizeOf(dtype)); }

std::string TensorSpec::ToString() const {
  if (!present) return "absent";
  std::string text = fmt::format("{}[{}]", Name(dtype), fmt::join(dims, ","));
  if (!strides.empty()) text += fmt::format("{{{}}}", fmt::join(strides, ","));
  return text;
}

std::string AttributeValue::ToString() const {
  switch (kind) {
    case Kind::kBool:
      return integer != 0 ? "true" : "false";
    case Kind::kInt:
      return fmt::format("{}", integer);
    case Kind::kFloat:
      return fmt::format("{}", number);
    case Kind::kText:
      return text;
    case Kind::kIntArray:
      return fmt::format("[{}]", fmt::join(integers, ","));
    case Kind::kFloatArray:
      return fmt::format("[{}]", fmt::join(numbers, ","));
  }
  return "";
}

bool Problem::AllResultsEmpty() const {
  for (const TensorSpec& result : results) {
    if (result.elements() != 0) return false;
  }
  return !results.empty();
}

std::string Problem::ToString() const { return text; }

Result<TensorSpec> ParseTensorSpec(std::string_view text) {
  const std::string_view whole = text;
  if (const size_t equals = text.find('='); equals != std::string_view::npos) {
    text = text.substr(equals + 1);
  }
  text = Trim(text);
  TensorSpec spec;
  if (text == "absent") {
    spec.present = false;
    return spec;
  }
  const size_t open = std::min(text.find('['), text.size());
  const size_t brace = std::min(text.find('{'), text.size());
  const auto dtype = ParseDType(Trim(text.substr(0, open)));
  std::vector<std::string_view> dims, strides;
  const bool strided = brace < text.size();
  if (!dtype || brace < open || !SplitList(Trim(text.substr(open, brace - open)), &dims) ||
      (strided && !SplitList(text.substr(brace), &strides, "{}"))) {
    return InvalidArgument(
        fmt::format("'{}' is no tensor: write a dtype and dims, as in bf16[4,2048], or with the "
                    "strides of its elements, as in bf16[4,2048]{{4096,1}}, or absent",
                    whole));
  }
  spec.dtype = *dtype;
  KB_RETURN_IF_ERROR(ParseNumbers(whole, "dim", dims, &spec.dims));
  KB_RETURN_IF_ERROR(ParseNumbers(whole, "stride", strides, &spec.strides));
  return spec;
}

AttributeValue ParseAttributeValue(std::string_view text) {
  using Kind = AttributeValue::Kind;
  text = Trim(text);
  AttributeValue value;
  if (text == "true" || text == "false") {
    value.kind = Kind::kBool;
    value.integer = text == "true";
    return value;
  }
  if (ParseNumber(text, &value.integer)) return value;
  if (ParseNumber(text, &value.number)) {
    value.kind = Kind::kFloat;
    return value;
  }
  std::vector<std::string_view> items;
  if (SplitList(text, &items)) {
    bool integers = true, numbers = true;
    for (std::string_view item : items) {
      int64_t integer = 0;
      double number = 0;
      integers &= ParseNumber(item, &integer);
      numbers &= ParseNumber(item, &number);
      value.integers.push_back(integer);
      value.numbers.push_back(number);
    }
    if (integers || numbers) {
      value.kind = integers ? Kind::kIntArray : Kind::kFloatArray;
      (integers ? static_cast<void>(value.numbers.clear()) : value.integers.clear());
      return value;
    }
    value = AttributeValue();
  }
  value.kind = Kind::kText;
  value.text = text;
  return value;
}

}  // namespace kbundle
