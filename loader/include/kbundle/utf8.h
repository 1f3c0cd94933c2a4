// Text in files and messages is UTF-8.
#ifndef KBUNDLE_UTF8_H_
#define KBUNDLE_UTF8_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
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
    uint64_t eight = 0;  // at the end of the text fewer, and zeros
    const size_t count = std::min(text.size() - at, sizeof eight);
    std::memcpy(&eight, text.data() + at, count);
    if ((eight & 0x8080808080808080u) == 0) {  // ASCII, as most text is
      at += count;
      continue;
    }
    const size_t length = Utf8Length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

// Whether the text is ASCII without control characters, as nearly every name is.
inline bool IsPrintable(std::string_view text) {
  constexpr uint64_t kEach = 0x0101010101010101u;
  while (!text.empty()) {
    uint64_t eight = 0x20 * kEach;
    const size_t count = std::min(text.size(), sizeof eight);
    std::memcpy(&eight, text.data(), count);
    // Of a byte below 0x20 the difference has the upper bit, of one from 0x7f on the sum or the
    // byte itself. What such a byte borrows from its neighbour or carries into it changes nothing.
    if ((((eight - 0x20 * kEach) | (eight + kEach) | eight) & 0x80 * kEach) != 0) return false;
    text.remove_prefix(count);
  }
  return true;
}

// The text to be shown: each byte that begins no sequence, and each zero byte, of which UTF-16 is
// full, as U+FFFD.
inline std::string Legible(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = text[0] == '\0' ? 0 : Utf8Length(text);
    out += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

}  // namespace kbundle

#endif  // KBUNDLE_UTF8_H_
