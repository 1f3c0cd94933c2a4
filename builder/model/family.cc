// What several checks of arguments ask of an op. Regions have types too: a step's pointer is to any
// of the three.
#include "builder/model/family.h"

#include <algorithm>

namespace kbundle::builder {

DType DTypeOf(const Arg& pointer, const Op& op, const Template& variant,
              const std::vector<DType>& types) {
  const auto index = static_cast<size_t>(pointer.index);
  if (pointer.kind == ArgKind::kOperand) return DTypeOf(op.operands[index].type, types);
  if (pointer.kind == ArgKind::kResult) return DTypeOf(op.results[index].type, types);
  return DTypeOf(variant.regions[index].type, types);
}

bool IsInOut(const Op& op, int operand) {
  return std::any_of(op.results.begin(), op.results.end(),
                     [&](const Tensor& result) { return result.alias == operand; });
}

}  // namespace kbundle::builder
