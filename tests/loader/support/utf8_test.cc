// Promise: what is shown is UTF-8 whatever the bytes are, and what is UTF-8 is shown as it is.
#include "kbundle/utf8.h"

#include <gtest/gtest.h>

namespace kbundle {
namespace {

using namespace std::string_view_literals;

TEST(Utf8, KeepsWellFormedTextAsItIs) {
  const auto text = "gr\u00fc\u00dfe \u20ac \U0001f642\t\x1b[1m\n"sv;
  EXPECT_EQ(Legible(text), text);
  EXPECT_EQ(Legible(""), "");
}

TEST(Utf8, ShowsEachByteThatIsNoneAsOneReplacement) {
  EXPECT_EQ(Legible("caf\xe9\n"), "caf\ufffd\n");
  EXPECT_EQ(Legible("\xff\xfe["), "\ufffd\ufffd[");
  EXPECT_EQ(Legible("\xe2\x82"), "\ufffd\ufffd") << "cut at its end";
  EXPECT_EQ(Legible("\xc0\xaf"), "\ufffd\ufffd") << "overlong";
  EXPECT_EQ(Legible("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "a surrogate";
}

TEST(Utf8, ShowsZeroBytesToo) { EXPECT_EQ(Legible("a\0b\0"sv), "a\ufffdb\ufffd"); }

TEST(Utf8, IsPrintableWithoutControlCharacters) {
  EXPECT_TRUE(IsPrintable(""));
  for (size_t size = 1; size <= 17; ++size) {
    for (size_t at = 0; at < size; ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        for (const char around : {' ', '~'}) {
          std::string text(size, around);
          text[at] = static_cast<char>(byte);
          ASSERT_EQ(IsPrintable(text), byte >= 0x20 && byte < 0x7f)
              << size << " " << at << " " << byte;
          ASSERT_EQ(NotUtf8(text), byte < 0x80 ? size : at) << size << " " << at << " " << byte;
        }
      }
    }
  }
}

// Of every pair of bytes: a second look finds nothing more to repair.
TEST(Utf8, IsAlwaysWellFormedAfterwards) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text =
          Legible(std::string{static_cast<char>(first), static_cast<char>(second)});
      ASSERT_EQ(NotUtf8(text), text.size()) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace kbundle
