// The evaluator of the index's programs, without strings: what Select runs thousands of times.
#ifndef KBUNDLE_LOADER_EVAL_H_
#define KBUNDLE_LOADER_EVAL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kbundle/arithmetic.h"
#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"

namespace kbundle {

// Runs a verified program. No allocation.
Slot RunProgram(const EvalContext& context, const fb::Index& index, uint32_t first, uint32_t count);
inline Slot RunProgram(const EvalContext& context, const fb::Span& program) {
  return RunProgram(context, context.bundle->index(), program.first(), program.count());
}

// "`rows * K` overflows 64 bits with rows=.., K=.."
std::string DescribeEvalError(const EvalContext& context, SlotError error, std::string_view text);

// "K=64, rows=4", or "no symbols".
std::string SymbolValues(const Bundle& bundle, const Problem& problem);

// Index of the operand or result numbered `tensor` (operands first).
const TensorSpec& TensorOf(const Problem& problem, uint32_t tensor);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_EVAL_H_
