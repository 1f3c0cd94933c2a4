// Nothing is refused here: a wrong character is a token too, and a number keeps the letters behind
// it, so that the parser, which knows what was wanted, says what is wrong with the whole of it.
#include "builder/score/token.h"

#include <algorithm>
#include <array>

namespace kbundle::builder {
namespace {

constexpr std::string_view kBlanks = " \t\n\r";
// Longest first, so that a prefix never wins. A single '=' is one for the sake of its message.
constexpr std::array<std::string_view, 19> kPunctuation = {"||", "&&", "==", "!=", "<=", ">=", "+",
                                                           "-",  "*",  "/",  "<",  ">",  "!",  "(",
                                                           ")",  "[",  "]",  ",",  "="};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// A number with fraction and exponent; whatever letters and digits follow belong to it.
size_t NumberEnd(std::string_view text, size_t i) {
  const auto at = [text](size_t j) { return j < text.size() ? text[j] : '\0'; };
  for (;; ++i) {
    const bool exponent = (at(i) == 'e' || at(i) == 'E') &&
                          (at(i + 1) == '-' || at(i + 1) == '+') && IsDigit(at(i + 2));
    if (exponent) ++i;
    if (!exponent && !IsDigit(at(i)) && !IsNameStart(at(i)) && at(i) != '.') return i;
  }
}

// 0: none begins here.
size_t PunctuationSize(std::string_view rest) {
  for (const std::string_view one : kPunctuation) {
    if (rest.starts_with(one)) return one.size();
  }
  return 0;
}

}  // namespace

Token NextScoreToken(std::string_view text, size_t at) {
  const size_t i = std::min(text.find_first_not_of(kBlanks, at), text.size());
  Token token;
  token.begin = token.end = static_cast<int>(i);
  if (i == text.size()) return token;
  size_t end = i + 1;
  if (IsDigit(text[i]) || (text[i] == '.' && i + 1 < text.size() && IsDigit(text[i + 1]))) {
    token.kind = Token::Kind::kNumber;
    end = NumberEnd(text, i);
  } else if (IsNameStart(text[i])) {
    token.kind = Token::Kind::kName;
    while (end < text.size() && (IsNameStart(text[end]) || IsDigit(text[end]))) ++end;
  } else if (const size_t size = PunctuationSize(text.substr(i)); size > 0) {
    token.kind = Token::Kind::kPunctuation;
    end = i + size;
  } else {
    token.kind = Token::Kind::kText;
  }
  token.text = text.substr(i, end - i);
  token.end = static_cast<int>(end);
  return token;
}

}  // namespace kbundle::builder
