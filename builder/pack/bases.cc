// Estimates are what costs, so a sibling is estimated alone and against those that it has most in
// common with, once, and the search only adds numbers of that table. Each pass tries to make or
// unmake every base and takes the best change, so the total falls until it stays. The answer goes
// to the store under the siblings' hashes.
#include "builder/pack/bases.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "builder/pack/frames.h"
#include "builder/pack/sketch.h"
#include "builder/support/elf.h"
#include "builder/support/schedule.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr uint32_t kSchema = 5;
// A grid of hundreds of points must not take hundreds of thousands of estimates, nor one of
// thousands a million.
constexpr uint32_t kAlike = 32, kWhole = 1024, kSample = 256, kTried = 3;
// What a base that the manifest names earlier may cost more: one part in so many.
constexpr size_t kDearer = 100;

// `count` numbers below `all`, as evenly as can be.
std::vector<uint32_t> Spread(uint32_t count, uint32_t all) {
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<uint32_t>(uint64_t{i} * all / count));
  }
  return numbers;
}

// Estimated sizes: alone, and of each candidate those that may be stored against it.
struct Against {
  uint32_t sibling;
  size_t bytes;
};
struct Costs {
  std::vector<size_t> alone;
  std::vector<std::vector<Against>> against;  // [candidate]
};

// By place among the siblings.
using Sketches = std::map<uint32_t, Sketch>;

// Those of `sketches`, but sibling `own` itself, with which it has most in common; most first.
std::vector<uint32_t> MostAlike(const Sketches& sketches, uint32_t own, const Sketch& sketch,
                                size_t most) {
  std::vector<std::pair<size_t, uint32_t>> alike;  // how much, and the sibling
  for (const auto& [other, found] : sketches) {
    if (other != own) alike.emplace_back(Common(sketch, found), other);
  }
  const size_t count = std::min(most, alike.size());
  std::partial_sort(alike.begin(), alike.begin() + static_cast<int64_t>(count), alike.end(),
                    [](const auto& a, const auto& b) {
                      return a.first != b.first ? a.first > b.first : a.second < b.second;
                    });
  std::vector<uint32_t> siblings;
  for (size_t i = 0; i < count; ++i) siblings.push_back(alike[i].second);
  return siblings;
}

Result<Costs> Estimate(const std::vector<Sibling>& siblings, int jobs) {
  const size_t count = siblings.size();
  Sketches sketches;
  for (uint32_t i = 0; i < count; ++i) sketches[i];
  KB_RETURN_IF_ERROR(RunAll(count, jobs, [&](size_t i) {
    sketches.at(static_cast<uint32_t>(i)) = SketchOf(*siblings[i].bytes);
    return Status();
  }));
  Costs costs{std::vector<size_t>(count), std::vector<std::vector<Against>>(count)};
  std::vector<std::vector<Against>> found(count);  // [sibling], with candidates
  KB_RETURN_IF_ERROR(RunAll(count, jobs, [&](size_t i) {
    KB_ASSIGN_OR_RETURN(costs.alone[i], EstimateFrame(*siblings[i].bytes, nullptr));
    const auto own = static_cast<uint32_t>(i);
    for (const uint32_t c : MostAlike(sketches, own, sketches.at(own), kAlike)) {
      KB_ASSIGN_OR_RETURN(const size_t bytes, EstimateFrame(*siblings[i].bytes, siblings[c].bytes));
      if (bytes < costs.alone[i]) found[i].push_back({c, bytes});
    }
    return Status();
  }));
  for (uint32_t i = 0; i < count; ++i) {
    for (const Against& one : found[i]) costs.against[one.sibling].push_back({i, one.bytes});
  }
  return costs;
}

// Who refers to whom, and what it costs, with some of the candidates as bases.
struct Assignment {
  std::vector<uint32_t> base_of;
  std::vector<size_t> bytes;  // of each sibling
  size_t all = 0;
};

Assignment Assign(const Costs& costs, const std::vector<bool>& chosen) {
  Assignment result;
  for (uint32_t i = 0; i < chosen.size(); ++i) result.base_of.push_back(i);
  result.bytes = costs.alone;
  for (uint32_t c = 0; c < chosen.size(); ++c) {
    if (!chosen[c]) continue;
    for (const Against& one : costs.against[c]) {
      if (chosen[one.sibling] || one.bytes >= result.bytes[one.sibling]) continue;
      result.bytes[one.sibling] = one.bytes;
      result.base_of[one.sibling] = c;
    }
  }
  result.all = std::accumulate(result.bytes.begin(), result.bytes.end(), size_t{0});
  return result;
}

// What all take with `c` as one more base.
size_t WithBase(const Costs& costs, const std::vector<bool>& chosen, const Assignment& now,
                uint32_t c) {
  size_t all = now.all + costs.alone[c] - now.bytes[c];
  for (const Against& one : costs.against[c]) {
    const size_t before = now.bytes[one.sibling];
    if (!chosen[one.sibling] && one.bytes < before) all -= before - one.bytes;
  }
  return all;
}

// Makes or unmakes the base that saves most, until no such change saves anything.
std::vector<uint32_t> Search(const Costs& costs) {
  std::vector<bool> chosen(costs.alone.size(), false);
  while (true) {
    const Assignment now = Assign(costs, chosen);
    size_t best = now.all;
    uint32_t change = 0;
    for (uint32_t c = 0; c < chosen.size(); ++c) {
      size_t all = 0;
      if (chosen[c]) {
        chosen[c] = false;
        all = Assign(costs, chosen).all;
        chosen[c] = true;
      } else {
        all = WithBase(costs, chosen, now, c);
      }
      if (all < best) best = all, change = c;
    }
    if (best == now.all) return now.base_of;
    chosen[change] = !chosen[change];
  }
}

Result<std::vector<uint32_t>> ChooseAmongAll(const std::vector<Sibling>& siblings, int jobs) {
  KB_ASSIGN_OR_RETURN(const Costs costs, Estimate(siblings, jobs));
  return Search(costs);
}

Result<std::vector<uint32_t>> ChooseBySample(const std::vector<Sibling>& siblings, int jobs) {
  const auto count = static_cast<uint32_t>(siblings.size());
  const std::vector<uint32_t> sample = Spread(kSample, count);
  std::vector<Sibling> few;
  for (uint32_t i : sample) few.push_back(siblings[i]);
  KB_ASSIGN_OR_RETURN(const std::vector<uint32_t> answers, ChooseAmongAll(few, jobs));
  Sketches bases;
  for (size_t i = 0; i < few.size(); ++i) {
    if (answers[i] != i) bases[sample[answers[i]]];
  }
  for (auto& [base, sketch] : bases) sketch = SketchOf(*siblings[base].bytes);

  std::vector<uint32_t> base_of(count);
  KB_RETURN_IF_ERROR(RunAll(count, jobs, [&](size_t i) {
    base_of[i] = static_cast<uint32_t>(i);
    if (bases.contains(base_of[i])) return Status();
    KB_ASSIGN_OR_RETURN(size_t best, EstimateFrame(*siblings[i].bytes, nullptr));
    for (const uint32_t base : MostAlike(bases, base_of[i], SketchOf(*siblings[i].bytes), kTried)) {
      KB_ASSIGN_OR_RETURN(const size_t size,
                          EstimateFrame(*siblings[i].bytes, siblings[base].bytes));
      if (size >= best) continue;
      best = size;
      base_of[i] = base;
    }
    return Status();
  }));
  return base_of;
}

// What `base` takes alone and each other of `tree` against it.
Result<std::vector<size_t>> EstimateTree(const std::vector<Sibling>& siblings,
                                         const std::vector<uint32_t>& tree, uint32_t base) {
  std::vector<size_t> sizes;
  for (const uint32_t i : tree) {
    KB_ASSIGN_OR_RETURN(
        const size_t size,
        EstimateFrame(*siblings[i].bytes, i == base ? nullptr : siblings[base].bytes));
    sizes.push_back(size);
  }
  return sizes;
}

size_t SumOf(const std::vector<size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

// Of a base and those stored against it, the first in the manifest becomes the base where that
// costs about the same: its twin of another element type, mostly. Another that is as early in it is
// no better, so only the one that is least against the base is tried.
Result<uint32_t> BaseOfTree(const std::vector<Sibling>& siblings, const std::vector<uint32_t>& tree,
                            uint32_t base) {
  KB_ASSIGN_OR_RETURN(const std::vector<size_t> now, EstimateTree(siblings, tree, base));
  size_t twin = tree.size();
  for (size_t i = 0; i < tree.size(); ++i) {
    const bool earlier = siblings[tree[i]].rank < siblings[base].rank;
    if (earlier && (twin == tree.size() || now[i] < now[twin])) twin = i;
  }
  if (twin == tree.size()) return base;
  KB_ASSIGN_OR_RETURN(const std::vector<size_t> then, EstimateTree(siblings, tree, tree[twin]));
  return SumOf(then) <= SumOf(now) + SumOf(now) / kDearer ? tree[twin] : base;
}

Result<std::vector<uint32_t>> PreferFirst(const std::vector<Sibling>& siblings,
                                          std::vector<uint32_t> base_of, int jobs) {
  std::map<uint32_t, std::vector<uint32_t>> trees;
  for (uint32_t i = 0; i < base_of.size(); ++i) trees[base_of[i]].push_back(i);
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> rows(trees.begin(), trees.end());
  KB_RETURN_IF_ERROR(RunAll(rows.size(), jobs, [&](size_t t) {
    const auto& [base, tree] = rows[t];
    if (tree.size() == 1) return Status();
    KB_ASSIGN_OR_RETURN(const uint32_t better, BaseOfTree(siblings, tree, base));
    for (const uint32_t i : tree) base_of[i] = better;
    return Status();
  }));
  return base_of;
}

}  // namespace

Result<std::vector<uint32_t>> ChooseBases(const std::vector<Sibling>& siblings,
                                          const ObjectStore& store, int jobs) {
  if (siblings.size() < 2) return std::vector<uint32_t>(siblings.size(), 0);
  KeyWriter identity;
  identity.U32(kSchema).Text(ZstdVersion());
  for (const Sibling& sibling : siblings) identity.Text(ToHex(sibling.sha256)).U32(sibling.rank);
  const std::string key = ToHex(Sha256Of(identity.bytes().data(), identity.bytes().size()));

  std::vector<uint32_t> bases;
  if (const auto known = store.Get("bases", key); known && known->size() == siblings.size() * 4) {
    for (size_t i = 0; i < siblings.size(); ++i)
      bases.push_back(LoadLittle<uint32_t>(*known, i * 4));
    return bases;
  }
  const auto choose = siblings.size() > kWhole ? ChooseBySample : ChooseAmongAll;
  KB_ASSIGN_OR_RETURN(bases, choose(siblings, jobs));
  KB_ASSIGN_OR_RETURN(bases, PreferFirst(siblings, std::move(bases), jobs));
  KeyWriter text;
  for (uint32_t base : bases) text.U32(base);
  store.Put("bases", key, text.bytes());
  return bases;
}

}  // namespace kbundle::builder
