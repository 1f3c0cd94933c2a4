// What the parsers of the two small languages share: pieces of text, and errors at a place of it.
#ifndef KBUNDLE_BUILDER_SUPPORT_TOKEN_H_
#define KBUNDLE_BUILDER_SUPPORT_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace kbundle::builder {

// Offsets are bytes of the text parsed.
struct ExpressionError {
  int offset = 0, length = 1;
  std::string message, note;
  bool unknown_name = false;  // may be the consequence of a declaration that failed
};

struct Token {
  enum class Kind : uint8_t { kEnd, kNumber, kName, kText, kPunctuation };
  Kind kind = Kind::kEnd;
  int begin = 0, end = 0;
  std::string text;  // kText: without its quotes
  bool Is(std::string_view punctuation) const {
    return kind == Kind::kPunctuation && text == punctuation;
  }
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_TOKEN_H_
