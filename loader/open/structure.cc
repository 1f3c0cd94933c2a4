// FlatBuffers' verifier counts a table as often as it is referred to. Its limit grows with the
// index, so that a small file cannot ask for a long check.
#include "loader/open/structure.h"

#include <fmt/format.h>

#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"

namespace kbundle {
namespace {

// A table is at least 8 bytes: the verifier's limit grows with the index and no further.
flatbuffers::uoffset_t MaxTables(uint64_t index_size) {
  return static_cast<flatbuffers::uoffset_t>(index_size / 8 + 16);
}

}  // namespace

Status CheckStructure(const uint8_t* bytes, uint64_t size) {
  constexpr uint64_t kLeast = 12;  // root offset, identifier, a table
  if (size < kLeast) return DataLoss(fmt::format("index of {} bytes", size));
  if (!flatbuffers::BufferHasIdentifier(bytes, kIndexIdentifier)) {
    return DataLoss(fmt::format("the index does not carry the identifier {}", kIndexIdentifier));
  }
  flatbuffers::Verifier::Options options;
  options.max_depth = 16;
  options.max_tables = MaxTables(size);
  flatbuffers::Verifier verifier(bytes, size, options);
  if (!verifier.VerifyBuffer<fb::Index>(kIndexIdentifier)) {
    return DataLoss("the index is not a sound FlatBuffer");
  }
  return Status();
}

}  // namespace kbundle
