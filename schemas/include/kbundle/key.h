// Canonical keys: one code for the writer (builder) and the reader (loader).
#ifndef KBUNDLE_KEY_H_
#define KBUNDLE_KEY_H_

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kbundle/dtype.h"

namespace kbundle {

// The dtypes bound to an op's type parameters, one byte each, the first in the lowest byte.
uint64_t PackTypes(std::span<const DType> types);
DType TypeAt(uint64_t packed, int param);

// Orders Index.entries and Index.variants.
struct EntryKey {
  uint32_t op;
  uint16_t target;
  uint64_t types;
  auto operator<=>(const EntryKey&) const = default;
};

// Appends values in a form that is unambiguous and equal on every machine (little-endian, lengths
// before variable parts). Used for problem keys, interface hashes and object-store keys.
class KeyWriter {
 public:
  KeyWriter& U8(uint8_t v);
  KeyWriter& U32(uint32_t v);
  KeyWriter& U64(uint64_t v);
  KeyWriter& I64(int64_t v);
  KeyWriter& F64(double v);  // by bits; -0.0 and 0.0 differ, every NaN is one NaN
  KeyWriter& Text(std::string_view v);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

uint64_t Xxh3(const void* data, size_t size);

}  // namespace kbundle

#endif  // KBUNDLE_KEY_H_
