#include "problem_points.h"

#include <set>
#include <utility>

#include "problem_bindings.h"

namespace kbundle::builder {
namespace {

bool Takes(const Template& variant, Bindings bindings) {
  if (!AddLets(variant, &bindings).ok()) return false;
  for (const Program& rule : variant.author_when) {
    const Slot slot = Run(rule.code, bindings);
    if (!slot.ok() || slot.value == 0) return false;
  }
  return true;
}

// What the tunables of the variant stand for, but for the last, the library's version: the left
// side of each condition that its reader added (manifest_graph.cc).
std::vector<int64_t> PointOf(const Template& variant, const Bindings& bindings) {
  std::vector<int64_t> values;
  for (const Program& rule : variant.when) {
    const bool ties = rule.code.size() == 3 && rule.code[1].opcode == Opcode::kTunable;
    if (ties) values.push_back(Run({rule.code[0]}, bindings).value);
  }
  return values;
}

}  // namespace

void SetProblemPoints(Op* op) {
  for (Template& variant : op->templates) {
    if (variant.provider != Provider::kCudnn) continue;
    variant.points.clear();
    std::set<std::pair<std::vector<DType>, std::vector<int64_t>>> seen;
    for (size_t i = 0; i < op->problems.size(); ++i) {
      const Bindings bindings = BindingsOf(*op, op->problems[i]);
      if (!Takes(variant, bindings)) continue;
      for (const int64_t version : variant.cudnn) {
        Template::Point point;
        point.types = bindings.types;
        point.tunables = PointOf(variant, bindings);
        point.tunables.push_back(version);
        point.problem = static_cast<int>(i);
        if (!seen.emplace(point.types, point.tunables).second) continue;
        variant.points.push_back(std::move(point));
      }
    }
  }
}

}  // namespace kbundle::builder
