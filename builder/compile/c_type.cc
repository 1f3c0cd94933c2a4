// No parser of C++: there is no end to that. Words in any order make the integers, a table the
// floats, and whatever is left stays unknown, which takes any argument of its size: a wrong
// "mismatch" would stop a right build, while sizes are checked apart from this.
#include "builder/compile/c_type.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

namespace kbundle::builder {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = Trimmed(text); !text.empty(); text = Trimmed(text)) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// "unsigned long long", "long unsigned int": the words in any order. LP64: a long is 64 bits.
DType IntegerType(const std::vector<std::string_view>& words) {
  const auto has = [&](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const auto is_part = [](std::string_view word) {
    return word == "unsigned" || word == "signed" || word == "char" || word == "short" ||
           word == "int" || word == "long";
  };
  if (words.empty() || !std::all_of(words.begin(), words.end(), is_part)) return DType::kInvalid;
  const bool is_unsigned = has("unsigned");
  if (has("char")) return is_unsigned ? DType::kU8 : DType::kI8;
  if (has("short")) return is_unsigned ? DType::kU16 : DType::kI16;
  if (has("long")) return is_unsigned ? DType::kU64 : DType::kI64;
  return is_unsigned ? DType::kU32 : DType::kI32;
}

DType TypeNamed(std::string_view name) {
  static constexpr struct {
    std::string_view name;
    DType dtype;
  } kTypes[] = {{"bool", DType::kBool},           {"float", DType::kF32},
                {"double", DType::kF64},          {"__half", DType::kF16},
                {"_Float16", DType::kF16},        {"half", DType::kF16},
                {"__bf16", DType::kBF16},         {"__nv_bfloat16", DType::kBF16},
                {"float2", DType::kF32},          {"float3", DType::kF32},
                {"float4", DType::kF32},          {"double2", DType::kF64},
                {"double4", DType::kF64},         {"__half2", DType::kF16},
                {"__nv_bfloat162", DType::kBF16}, {"__nv_fp8_e4m3", DType::kE4M3},
                {"__nv_fp8_e5m2", DType::kE5M2},  {"__nv_fp8_e8m0", DType::kE8M0}};
  for (const auto& type : kTypes) {
    if (type.name == name) return type.dtype;
  }
  return DType::kInvalid;
}

bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64:
      return true;
    default:
      return false;
  }
}

int Nesting(char c) {
  if (c == '<' || c == '(' || c == '[' || c == '{') return 1;
  return c == '>' || c == ')' || c == ']' || c == '}' ? -1 : 0;
}

}  // namespace

CType ParseCType(std::string_view text) {
  CType type;
  text = Trimmed(text);
  for (std::string_view suffix :
       {"__restrict__", "__restrict", "const"}) {  // of the pointer itself
    if (text.ends_with(suffix) && text.find('*') != std::string_view::npos &&
        text.substr(text.rfind('*')).size() ==
            suffix.size() + 1 + (text[text.rfind('*') + 1] == ' '))
      text = Trimmed(text.substr(0, text.size() - suffix.size()));
  }
  if (text.ends_with('*')) {
    type.pointer = true;
    text = Trimmed(text.substr(0, text.size() - 1));
  }
  std::vector<std::string_view> words = Words(text);
  // "float* const*": what is const is a pointer, and says nothing of the numbers.
  const bool plain = text.find('*') == std::string_view::npos;
  const size_t all = words.size();
  if (plain && !words.empty() && (words.front() == "const" || words.back() == "const")) {
    std::erase(words, "const");
  }
  type.is_const = words.size() != all;
  std::erase(words, "volatile");
  type.dtype = words.size() == 1 ? TypeNamed(words[0]) : DType::kInvalid;
  if (type.named()) type.dtype = IntegerType(words);
  // A vector passed by value is a struct like any other.
  const bool vector = !type.pointer && words.size() == 1 && std::isdigit(words[0].back()) &&
                      words[0].back() <= '4' && !words[0].starts_with("_");
  if (vector) type.dtype = DType::kInvalid;
  return type;
}

std::vector<std::string> SplitTypes(std::string_view list) {
  std::vector<std::string> types;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size()) depth += Nesting(list[i]);
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    const std::string_view type = Trimmed(list.substr(begin, i - begin));
    if (!type.empty() && type != "void") types.emplace_back(type);
    begin = i + 1;
  }
  return types;
}

std::optional<std::vector<std::string>> TypesOfSymbol(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return std::nullopt;
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &failed), &std::free);
  if (failed != 0 || text == nullptr) return std::nullopt;
  std::string_view name = text.get();
  if (!name.ends_with(')')) return std::nullopt;
  int depth = 0;
  size_t open = name.size();
  while (open-- > 0) {
    if (name[open] == ')') ++depth;
    if (name[open] == '(' && --depth == 0) break;
  }
  if (open >= name.size()) return std::nullopt;
  return SplitTypes(name.substr(open + 1, name.size() - open - 2));
}

bool MayPointAt(DType element, DType tensor) {
  if (element == tensor || SizeOf(element) == 1) {
    return element == tensor || IsInteger(element) || tensor == DType::kU8;
  }
  if (SizeOf(element) != SizeOf(tensor) || !IsInteger(element)) return false;
  return IsInteger(tensor) || SizeOf(element) == 2;
}

bool MayTake(DType parameter, DType passed) {
  return parameter == passed ||
         (passed == DType::kBool && IsInteger(parameter) && SizeOf(parameter) == 1);
}

}  // namespace kbundle::builder
