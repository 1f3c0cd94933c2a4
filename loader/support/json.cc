// The writer keeps one bit of state: whether a comma is due.
#include "kbundle/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "kbundle/utf8.h"

namespace kbundle {

void JsonWriter::Comma() {
  if (!first_) text_ += ',';
  first_ = false;
}

void JsonWriter::Quote(std::string_view value) {
  text_ += '"';
  while (!value.empty()) {
    const char c = value[0];
    size_t length = Utf8Length(value);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c));
      text_ += escaped;
    } else if (length == 0) {
      text_ += "\xef\xbf\xbd";
      length = 1;
    } else {
      text_ += value.substr(0, length);
    }
    value.remove_prefix(length);
  }
  text_ += '"';
}

JsonWriter& JsonWriter::BeginObject() {
  Comma();
  text_ += '{';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::EndObject() {
  text_ += '}';
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::BeginArray() {
  Comma();
  text_ += '[';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::EndArray() {
  text_ += ']';
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Comma();
  Quote(name);
  text_ += ':';
  first_ = true;  // the value follows without a comma
  return *this;
}

JsonWriter& JsonWriter::Text(std::string_view value) {
  Comma();
  Quote(value);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) {
  Comma();
  text_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::Unsigned(uint64_t value) {
  Comma();
  text_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::Number(double value) {
  if (std::isnan(value)) return Text("nan");
  if (std::isinf(value)) return Text(value > 0 ? "inf" : "-inf");
  Comma();
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string_view number(digits.data(), static_cast<size_t>(end - digits.data()));
  text_ += number;
  if (number.find_first_of(".e") == std::string_view::npos)
    text_ += ".0";  // stays a float in Python
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  Comma();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::Null() {
  Comma();
  text_ += "null";
  return *this;
}

}  // namespace kbundle
