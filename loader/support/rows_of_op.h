// Which rows of a sorted vector are one op's.
#ifndef KBUNDLE_LOADER_ROWS_OF_OP_H_
#define KBUNDLE_LOADER_ROWS_OF_OP_H_

#include <cstdint>

#include "loader/support/absent.h"

namespace kbundle {

struct RowRange {
  uint32_t first = 0, end = 0;
};

// `rows`: sorted by op; null: none.
template <typename Row>
RowRange RowsOfOp(const flatbuffers::Vector<const Row*>* rows, uint32_t op) {
  const auto bound = [rows](uint64_t wanted) {
    uint32_t low = 0, high = Count(rows);
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (rows->Get(middle)->op() < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  return {bound(op), bound(uint64_t{op} + 1)};
}

// Of Index.variants, which the sorted entries cover in order: right even where a row itself lies
// about its op, as one that was not checked yet may.
inline RowRange VariantRowsOfOp(const fb::Index& index, uint32_t op) {
  const RowRange entries = RowsOfOp(index.entries(), op);
  if (entries.first == entries.end) return {};
  const fb::Entry& last = *index.entries()->Get(entries.end - 1);
  return {index.entries()->Get(entries.first)->first(), last.first() + last.count()};
}

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_ROWS_OF_OP_H_
