// A plan holds its shapes, so there is no grid to walk: the listed problems are the grid. Two
// problems that agree in types and in everything the variant's graph depends on share a point.
#include "builder/provider/cudnn/points.h"

#include <set>
#include <utility>

#include "builder/problem/bindings.h"
#include "builder/provider/cudnn/graph.h"

namespace kbundle::builder {
namespace {

// What the variant's tunables are for a problem, but for the last two: which of the library's
// plans, and the library's version.
std::vector<int64_t> PointOf(const Template& variant, const Bindings& bindings) {
  std::vector<int64_t> values;
  for (const Instruction& tied : PlanKeysOf(variant).tied)
    values.push_back(Run({tied}, bindings).value);
  return values;
}

// bindings: with the point's tunables, so that only what the point does not fix can fail.
bool Takes(const Template& variant, Bindings bindings) {
  if (!AddLets(variant, &bindings).ok()) return false;
  for (const Program& rule : variant.when) {
    const Slot slot = Run(rule.code, bindings);
    if (!slot.ok() || slot.value == 0) return false;
  }
  return true;
}

}  // namespace

void SetPlanPoints(const Op& op, Template* variant) {
  const PlanKeys& keys = PlanKeysOf(*variant);
  variant->points.clear();
  std::set<std::pair<std::vector<DType>, std::vector<int64_t>>> seen;
  for (size_t i = 0; i < op.problems.size(); ++i) {
    Bindings bindings = BindingsOf(op, op.problems[i]);
    bindings.tunables = PointOf(*variant, bindings);
    if (!Takes(*variant, bindings)) continue;
    for (int64_t plan = 0; plan < keys.plans; ++plan) {
      for (const int64_t version : keys.versions) {
        Template::Point point;
        point.types = bindings.types;
        point.tunables = bindings.tunables;
        point.tunables.insert(point.tunables.end(), {plan, version});
        point.problem = static_cast<int>(i);
        if (!seen.emplace(point.types, point.tunables).second) continue;
        variant->points.push_back(std::move(point));
      }
    }
  }
}

}  // namespace kbundle::builder
