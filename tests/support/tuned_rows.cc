// A record is spread over four tables of the index: its row, sorted by what it matches, its
// coordinates, its device and the evidence. Tests say the facts; where they go is said here alone.
#include "support/tuned_rows.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kbundle/status.h"
#include "kbundle/tuned.h"
#include "loader/open/index.h"

namespace kbundle::testing {

void AddTunedRows(const Bundle& plain, const std::vector<TunedRow>& rows, fb::IndexT* index) {
  index->tuned_devices = {"GPU A", "GPU B"};
  std::vector<std::pair<uint64_t, const TunedRow*>> sorted;
  for (const TunedRow& row : rows) sorted.emplace_back(TunedMatch(plain, row.problem), &row);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [match, row] : sorted) {
    const uint32_t op = row->problem.op;
    index->tuned.emplace_back(match, op, row->winner, static_cast<uint32_t>(index->evidence.size()),
                              static_cast<uint32_t>(index->coordinates.size()),
                              IndexOf(plain).variants()->Get(row->winner)->target(), 0,
                              row->device == "GPU B");
    for (uint32_t i = 0; i < index->ops[op]->coordinates.size(); ++i) {
      const auto coordinate = TunedCoordinate(plain, row->problem, i);
      KB_CHECK(coordinate.has_value());
      index->coordinates.push_back(*coordinate);
    }
    auto evidence = std::make_unique<fb::EvidenceT>();
    evidence->base = row->base;
    evidence->times.emplace_back(row->winner, 45, 1.0, 2.0, 3.0, 1.0, 0.0, 0);
    index->evidence.push_back(std::move(evidence));
  }
}

}  // namespace kbundle::testing
