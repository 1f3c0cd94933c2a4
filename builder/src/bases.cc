#include "bases.h"

#include <algorithm>

#include "elf.h"
#include "frames.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr uint32_t kSchema = 1;
// A grid of hundreds of points must not take hundreds of thousands of estimates.
constexpr uint32_t kMaxCandidates = 16;

// Estimated sizes: alone, and against each candidate.
struct Costs {
  std::vector<size_t> alone;
  std::vector<uint32_t> candidates;
  std::vector<std::vector<size_t>> against;  // [candidate][sibling]
};

Result<Costs> Estimate(const std::vector<Sibling>& siblings) {
  Costs costs;
  const auto count = static_cast<uint32_t>(siblings.size());
  const uint32_t candidates = std::min(count, kMaxCandidates);
  for (const Sibling& sibling : siblings) {
    KB_ASSIGN_OR_RETURN(const size_t size, EstimateFrame(*sibling.bytes, nullptr));
    costs.alone.push_back(size);
  }
  for (uint32_t i = 0; i < candidates; ++i) {
    costs.candidates.push_back(static_cast<uint32_t>(uint64_t{i} * count / candidates));
    costs.against.emplace_back();
    for (const Sibling& sibling : siblings) {
      KB_ASSIGN_OR_RETURN(const size_t size,
                          EstimateFrame(*sibling.bytes, siblings[costs.candidates[i]].bytes));
      costs.against.back().push_back(size);
    }
  }
  return costs;
}

// Bytes saved by making candidate `c` a base; bases stand alone, which may cost some.
int64_t Gain(const Costs& costs, uint32_t c, const std::vector<size_t>& best,
             const std::vector<bool>& is_base) {
  const uint32_t self = costs.candidates[c];
  int64_t gain = static_cast<int64_t>(best[self]) - static_cast<int64_t>(costs.alone[self]);
  for (uint32_t i = 0; i < best.size(); ++i) {
    if (i != self && !is_base[i] && costs.against[c][i] < best[i]) {
      gain += static_cast<int64_t>(best[i] - costs.against[c][i]);
    }
  }
  return gain;
}

std::vector<uint32_t> Greedy(const Costs& costs) {
  std::vector<size_t> best = costs.alone;
  std::vector<bool> is_base(best.size(), false);
  std::vector<uint32_t> base_of;
  for (uint32_t i = 0; i < best.size(); ++i) base_of.push_back(i);
  while (true) {
    uint32_t pick = 0;
    int64_t most = 0;
    for (uint32_t c = 0; c < costs.candidates.size(); ++c) {
      const int64_t gain = is_base[costs.candidates[c]] ? 0 : Gain(costs, c, best, is_base);
      if (gain > most) most = gain, pick = c;
    }
    if (most == 0) return base_of;
    const uint32_t self = costs.candidates[pick];
    is_base[self] = true;
    best[self] = costs.alone[self];
    base_of[self] = self;
    for (uint32_t i = 0; i < best.size(); ++i) {
      if (is_base[i] || costs.against[pick][i] >= best[i]) continue;
      best[i] = costs.against[pick][i];
      base_of[i] = self;
    }
  }
}

}  // namespace

Result<std::vector<uint32_t>> ChooseBases(const std::vector<Sibling>& siblings,
                                          const ObjectStore& store) {
  if (siblings.size() < 2) return std::vector<uint32_t>(siblings.size(), 0);
  KeyWriter identity;
  identity.U32(kSchema).Text(ZstdVersion());
  for (const Sibling& sibling : siblings) identity.Text(ToHex(sibling.sha256));
  const std::string key = ToHex(Sha256Of(identity.bytes().data(), identity.bytes().size()));

  std::vector<uint32_t> bases;
  if (const auto known = store.Get("bases", key); known && known->size() == siblings.size() * 4) {
    for (size_t i = 0; i < siblings.size(); ++i)
      bases.push_back(LoadLittle<uint32_t>(*known, i * 4));
    return bases;
  }
  KB_ASSIGN_OR_RETURN(const Costs costs, Estimate(siblings));
  bases = Greedy(costs);
  KeyWriter text;
  for (uint32_t base : bases) text.U32(base);
  KB_RETURN_IF_ERROR(store.Put("bases", key, text.bytes()));
  return bases;
}

}  // namespace kbundle::builder
