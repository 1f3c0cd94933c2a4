// JsonWriter: appends one JSON document to a string, commas included. No parsing, no allocation but
// the text's own. A value type, for one thread at a time; the caller keeps begin and end balanced.
//
//   JsonWriter json;
//   json.BeginObject().Key("name").Text("x");
//   json.Key("dims").BeginArray().Int(1).EndArray().EndObject();
//
// Text that is not UTF-8 is repaired (U+FFFD), so the document always parses. Numbers that JSON
// does not know (infinities, NaN) become the texts "inf", "-inf" and "nan", which Python's float()
// reads.
#ifndef KBUNDLE_JSON_H_
#define KBUNDLE_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kbundle {

class JsonWriter {
 public:
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(std::string_view name);
  JsonWriter& Text(std::string_view value);
  JsonWriter& Int(int64_t value);
  JsonWriter& Unsigned(uint64_t value);
  JsonWriter& Number(double value);  // shortest form that reads back the same
  JsonWriter& Bool(bool value);
  JsonWriter& Null();

  const std::string& text() const& { return text_; }
  std::string text() && { return std::move(text_); }

 private:
  void Comma();
  void Quote(std::string_view value);

  std::string text_;
  bool first_ = true;  // nothing stands yet in the innermost object or array
};

}  // namespace kbundle

#endif  // KBUNDLE_JSON_H_
