// Which rows of a sorted vector are one op's, and what it is called: what a reader may ask of an op
// that nobody has checked yet.
#ifndef KBUNDLE_LOADER_ROWS_OF_OP_H_
#define KBUNDLE_LOADER_ROWS_OF_OP_H_

#include <cstdint>
#include <string_view>

#include "loader/support/absent.h"

namespace kbundle {

struct RowRange {
  uint32_t first = 0, end = 0;
};

// In an index with pages; elsewhere null.
inline const fb::Part* PartOf(const fb::Index& index, uint32_t op) {
  return Count(index.parts()) == 0 ? nullptr : index.parts()->Get(op);
}

inline std::string_view OpName(const fb::Index& index, uint32_t op) {
  return View(Count(index.parts()) == 0 ? index.ops()->Get(op)->name() : index.op_names()->Get(op));
}

// From where the op's part says to where the next one's does; `end` is the whole vector's.
inline RowRange RowsOfPart(const fb::Index& index, uint32_t op, uint32_t (fb::Part::*first)() const,
                           uint32_t end) {
  const fb::Part* next = op + 1 < index.parts()->size() ? index.parts()->Get(op + 1) : nullptr;
  return {(index.parts()->Get(op)->*first)(), next ? (next->*first)() : end};
}

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

inline RowRange EntriesOfOp(const fb::Index& index, uint32_t op) {
  if (PartOf(index, op) == nullptr) return RowsOfOp(index.entries(), op);
  return RowsOfPart(index, op, &fb::Part::entries, Count(index.entries()));
}

inline RowRange TunedRowsOfOp(const fb::Index& index, uint32_t op) {
  if (PartOf(index, op) == nullptr) return RowsOfOp(index.tuned(), op);
  return RowsOfPart(index, op, &fb::Part::tuned, Count(index.tuned()));
}

// Of Index.variants, which the sorted entries cover in order: right even where a row itself lies
// about its op, as one that was not checked yet may.
inline RowRange VariantRowsOfOp(const fb::Index& index, uint32_t op) {
  if (PartOf(index, op) != nullptr) {
    return RowsOfPart(index, op, &fb::Part::variants, Count(index.variants()));
  }
  const RowRange entries = RowsOfOp(index.entries(), op);
  if (entries.first == entries.end) return {};
  const fb::Entry& last = *index.entries()->Get(entries.end - 1);
  return {index.entries()->Get(entries.first)->first(), last.first() + last.count()};
}

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_ROWS_OF_OP_H_
