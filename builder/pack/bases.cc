#include "builder/pack/bases.h"

#include <algorithm>

#include "builder/pack/frames.h"
#include "builder/support/elf.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr uint32_t kSchema = 2;
// A grid of hundreds of points must not take hundreds of thousands of estimates.
constexpr uint32_t kMaxCandidates = 64;

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

// Who refers to whom, and what it costs, with some of the candidates as bases.
struct Assignment {
  size_t bytes = 0;
  std::vector<uint32_t> base_of;
};

Assignment Assign(const Costs& costs, const std::vector<bool>& chosen) {
  Assignment result;
  for (uint32_t i = 0; i < costs.alone.size(); ++i) result.base_of.push_back(i);
  std::vector<size_t> best = costs.alone;
  std::vector<bool> is_base(best.size(), false);
  for (uint32_t c = 0; c < chosen.size(); ++c) is_base[costs.candidates[c]] = chosen[c];
  for (uint32_t c = 0; c < chosen.size(); ++c) {
    if (!chosen[c]) continue;
    for (uint32_t i = 0; i < best.size(); ++i) {
      if (is_base[i] || costs.against[c][i] >= best[i]) continue;
      best[i] = costs.against[c][i];
      result.base_of[i] = costs.candidates[c];
    }
  }
  for (const size_t bytes : best) result.bytes += bytes;
  return result;
}

// Makes or unmakes the base that saves most, until no such change saves anything.
std::vector<uint32_t> Search(const Costs& costs) {
  std::vector<bool> chosen(costs.candidates.size(), false);
  Assignment best = Assign(costs, chosen);
  while (true) {
    size_t change = chosen.size();
    for (size_t c = 0; c < chosen.size(); ++c) {
      chosen[c] = !chosen[c];
      Assignment found = Assign(costs, chosen);
      chosen[c] = !chosen[c];
      if (found.bytes >= best.bytes) continue;
      best = std::move(found);
      change = c;
    }
    if (change == chosen.size()) return best.base_of;
    chosen[change] = !chosen[change];
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
  bases = Search(costs);
  KeyWriter text;
  for (uint32_t base : bases) text.U32(base);
  store.Put("bases", key, text.bytes());
  return bases;
}

}  // namespace kbundle::builder
