// Which tuned problem is near? What must be equal is hashed into one number, so a binary search
// finds the rows; among them the distance of the coordinates decides.
#include "kbundle/tuned.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "kbundle/bundle_generated.h"
#include "kbundle/key.h"
#include "loader/open/index.h"
#include "loader/support/absent.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {
namespace {

// Hashes a sequence of numbers in pieces that fit the stack.
class MatchHash {
 public:
  void Add(uint64_t number) {
    if (size_ == buffer_.size()) Fold();
    buffer_[size_++] = number;
  }
  uint64_t Finish() {
    Fold();
    return buffer_[0];
  }

 private:
  void Fold() {
    buffer_[0] = Xxh3(buffer_.data(), size_ * sizeof(uint64_t));
    size_ = 1;
  }
  std::array<uint64_t, 128> buffer_;
  size_t size_ = 0;
};

// `number`: of a symbol, or Count(op.symbols()) and an attribute's.
bool IsCoordinate(const fb::Op& op, uint32_t number) {
  for (uint32_t i = 0; i < Count(op.coordinates()); ++i) {
    if (op.coordinates()->Get(i) == number) return true;
  }
  return false;
}

// The i-th coordinate's value.
int64_t ValueOf(const fb::Op& op, const Problem& problem, uint32_t i) {
  const uint32_t number = op.coordinates()->Get(i), symbols = Count(op.symbols());
  return number < symbols ? problem.symbols[number] : problem.attributes[number - symbols].integer;
}

void AddAttribute(AttributeType type, const Problem::Attribute& value, MatchHash* hash) {
  if (type == AttributeType::kFloat || type == AttributeType::kFloatArray) return;
  hash->Add(static_cast<uint64_t>(value.integer));
  hash->Add(value.integers.size());
  for (int64_t integer : value.integers) hash->Add(static_cast<uint64_t>(integer));
}

// Whether rows that are near may be looked for without the hidden symbols: what is no coordinate is
// part of what they are found by.
bool AreCoordinates(const fb::Op& op, const SymbolSet& hidden) {
  if (hidden.none()) return true;
  for (uint32_t i = 0; i < Count(op.symbols()); ++i) {
    if (hidden[i] && !IsCoordinate(op, i)) return false;
  }
  return true;
}

bool Counts(const fb::Op& op, uint32_t coordinate, const SymbolSet& hidden) {
  const uint32_t number = op.coordinates()->Get(coordinate);
  return number >= Count(op.symbols()) || !hidden[number];
}

// In Index.tuned_devices; no row's number when it is not there.
uint32_t NumberOf(const fb::Index& index, const Device& device) {
  uint32_t number = 0;
  while (number < Count(index.tuned_devices()) &&
         index.tuned_devices()->Get(number)->string_view() != device.name) {
    ++number;
  }
  return number;
}

bool IsTuned(const fb::Index& index, uint32_t op) {
  const RowRange own = TunedRowsOfOp(index, op);
  return own.first != own.end;
}

// Rows of (op, target, match), which are consecutive.
std::pair<uint32_t, uint32_t> RowsOf(const fb::Index& index, uint32_t op, uint16_t target,
                                     uint64_t match) {
  const auto* rows = index.tuned();
  const RowRange own = TunedRowsOfOp(index, op);
  const auto bound = [&](bool above) {
    uint32_t low = own.first, high = own.end;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      const fb::Tuned& row = *rows->Get(middle);
      const auto key = std::tuple(row.op(), row.target(), row.match());
      const auto wanted = std::tuple(op, target, match);
      if (above ? key <= wanted : key < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  return {bound(false), bound(true)};
}

}  // namespace

uint64_t TunedMatch(const Bundle& bundle, const Problem& problem) {
  const fb::Op& op = OpOf(bundle, problem.op);
  MatchHash hash;
  hash.Add(problem.types);
  for (const TensorSpec& operand : problem.operands) {
    hash.Add(operand.present);
    hash.Add(operand.strides.size());
    for (int64_t stride : operand.strides) hash.Add(static_cast<uint64_t>(stride));
  }
  for (uint32_t i = 0; i < Count(op.attributes()); ++i) {
    if (IsCoordinate(op, Count(op.symbols()) + i)) continue;
    const auto type = static_cast<AttributeType>(op.attributes()->Get(i)->type());
    AddAttribute(type, problem.attributes[i], &hash);
  }
  for (uint32_t i = 0; i < problem.symbols.size(); ++i) {
    if (!IsCoordinate(op, i)) hash.Add(static_cast<uint64_t>(problem.symbols[i]));
  }
  return hash.Finish();
}

std::optional<double> TunedCoordinate(const Bundle& bundle, const Problem& problem, uint32_t i) {
  const int64_t value = ValueOf(OpOf(bundle, problem.op), problem, i);
  if (value <= 0) return std::nullopt;
  constexpr double kSteps = 1ull << 40;
  return std::nearbyint(std::log2(static_cast<double>(value)) * kSteps) / kSteps;
}

std::vector<NearestTuned> TunedByDistance(const Bundle& bundle, const Problem& problem,
                                          uint16_t target, const Device& device,
                                          const SymbolSet& hidden) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Op& op = OpOf(bundle, problem.op);
  std::vector<NearestTuned> rows;
  if (!IsTuned(index, problem.op) || !AreCoordinates(op, hidden)) return rows;
  std::vector<std::pair<uint32_t, double>> wanted;
  for (uint32_t i = 0; i < Count(op.coordinates()); ++i) {
    if (!Counts(op, i, hidden)) continue;
    const auto coordinate = TunedCoordinate(bundle, problem, i);
    if (!coordinate) return rows;
    wanted.emplace_back(i, *coordinate);
  }
  const auto [begin, end] = RowsOf(index, problem.op, target, TunedMatch(bundle, problem));
  for (uint32_t i = begin; i < end; ++i) {
    double distance = 0;
    for (const auto& [place, value] : wanted) {
      const uint32_t first = index.tuned()->Get(i)->coordinates();
      distance += std::abs(index.coordinates()->Get(first + place) - value);
    }
    rows.push_back({i, distance});
  }
  const uint32_t own = NumberOf(index, device);
  const auto rank = [&](const NearestTuned& row) {
    const bool other = index.tuned()->Get(static_cast<uint32_t>(row.row))->device() != own;
    return std::tuple(other, row.distance, row.row);
  };
  std::sort(rows.begin(), rows.end(),
            [&](const NearestTuned& a, const NearestTuned& b) { return rank(a) < rank(b); });
  return rows;
}

NearestTuned FindTuned(const Bundle& bundle, const Problem& problem, uint16_t target,
                       const Device& device, const SymbolSet& hidden) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Op& op = OpOf(bundle, problem.op);
  NearestTuned nearest;
  if (!IsTuned(index, problem.op) || !AreCoordinates(op, hidden)) return nearest;
  std::array<uint32_t, kMaxSymbols> places;  // of the coordinates that count
  std::array<double, kMaxSymbols> wanted;
  uint32_t count = 0;
  for (uint32_t i = 0; i < Count(op.coordinates()); ++i) {
    if (!Counts(op, i, hidden)) continue;
    const auto coordinate = TunedCoordinate(bundle, problem, i);
    if (!coordinate) return nearest;
    places[count] = i;
    wanted[count++] = *coordinate;
  }
  const auto [begin, end] = RowsOf(index, problem.op, target, TunedMatch(bundle, problem));
  const uint32_t own_device = NumberOf(index, device);
  const auto* coordinates = index.coordinates();  // null where no op has any
  bool nearest_own = false;
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t i = begin; i < end; ++i) {
    const fb::Tuned& row = *index.tuned()->Get(i);
    const bool own = row.device() == own_device;
    if (own < nearest_own) continue;
    // Once further away than the nearest, a row's other coordinates cannot bring it back.
    const double limit = own == nearest_own ? least : std::numeric_limits<double>::infinity();
    double distance = 0;
    for (uint32_t c = 0; c < count && distance < limit; ++c) {
      distance += std::abs(coordinates->Get(row.coordinates() + places[c]) - wanted[c]);
    }
    if (distance >= limit) continue;
    nearest.row = i;
    least = distance;
    nearest_own = own;
  }
  nearest.distance = least;
  return nearest;
}

}  // namespace kbundle
