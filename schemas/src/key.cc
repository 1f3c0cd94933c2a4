// Numbers are written byte by byte, so the machine's order does not matter, and a text's length
// stands before it, so that no two lists of values have the same bytes.
#include "kbundle/key.h"

#include <bit>
#include <cmath>

#include "kbundle/format.h"
#include "kbundle/status.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kbundle {

uint64_t PackTypes(std::span<const DType> types) {
  KB_CHECK(types.size() <= kMaxTypeParams);
  uint64_t packed = 0;
  for (size_t i = 0; i < types.size(); ++i) packed |= static_cast<uint64_t>(types[i]) << (8 * i);
  return packed;
}

DType TypeAt(uint64_t packed, int param) {
  KB_CHECK(param >= 0 && param < static_cast<int>(kMaxTypeParams));
  return static_cast<DType>(packed >> (8 * param) & 0xff);
}

KeyWriter& KeyWriter::U8(uint8_t v) {
  bytes_.push_back(static_cast<char>(v));
  return *this;
}

KeyWriter& KeyWriter::U32(uint32_t v) {
  for (int shift = 0; shift < 32; shift += 8) U8(static_cast<uint8_t>(v >> shift));
  return *this;
}

KeyWriter& KeyWriter::U64(uint64_t v) {
  for (int shift = 0; shift < 64; shift += 8) U8(static_cast<uint8_t>(v >> shift));
  return *this;
}

KeyWriter& KeyWriter::I64(int64_t v) { return U64(static_cast<uint64_t>(v)); }

KeyWriter& KeyWriter::F64(double v) {
  constexpr uint64_t kQuietNan = 0x7ff8000000000000ull;
  return U64(std::isnan(v) ? kQuietNan : std::bit_cast<uint64_t>(v));
}

KeyWriter& KeyWriter::Text(std::string_view v) {
  U64(v.size());
  bytes_.append(v);
  return *this;
}

uint64_t Xxh3(const void* data, size_t size) { return XXH3_64bits(data, size); }

}  // namespace kbundle
