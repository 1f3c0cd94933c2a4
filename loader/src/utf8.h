// Text in files and messages is UTF-8.
#ifndef KBUNDLE_LOADER_UTF8_H_
#define KBUNDLE_LOADER_UTF8_H_

#include <cstddef>
#include <string_view>

namespace kbundle {

// Bytes of the well-formed UTF-8 sequence with which `text`, which is not empty, begins (overlong
// forms, surrogates and values past U+10FFFF are not well formed); 0 when there is none.
inline size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

// Where the first byte is that begins no sequence; text.size() when all is UTF-8.
inline size_t NotUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = Utf8Length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_UTF8_H_
