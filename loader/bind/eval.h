// The evaluator of the index's programs, without strings: what Select runs thousands of times.
#ifndef KBUNDLE_LOADER_EVAL_H_
#define KBUNDLE_LOADER_EVAL_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kbundle/arithmetic.h"
#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"
#include "kbundle/problem.h"
#include "loader/open/index.h"

namespace kbundle {

// Evaluates a program of the index for a problem and a variant. Errors carry `text`.
struct EvalContext {
  const Bundle* bundle = nullptr;
  const Problem* problem = nullptr;
  std::span<const int64_t> tunables = {};
  std::span<const int64_t> lets = {};
  uint32_t let_errors = 0;  // bit i: lets[i] could not be computed; a program that uses it errs
  int64_t alignment = 16;   // bytes that every tensor's address is known to be a multiple of;
                            // align(x) is never below the element size
  int64_t sm_count = 1;
  // What the program may not see: looking at one of these, or at a size of a tensor that depends on
  // one, is the error kBatch. Null: nothing is hidden. Strides that a caller gave are his layout.
  const SymbolSet* hidden = nullptr;
  bool within_dim = false;  // the program is of a dim of the interface
};
// The lets of a variant's template, in order. A let that errs spoils only the programs that use it.
struct LetValues {
  std::array<int64_t, kMaxLets> values;  // the first `count` are set
  uint32_t count = 0;
  uint32_t errors = 0;
  std::span<const int64_t> view() const { return {values.data(), count}; }
};
static_assert(kMaxLets <= 32, "LetValues::errors has a bit for each");
// Of the variant's own tunables; alignment and sm_count are the context's.
LetValues EvaluateLets(const EvalContext& context, uint32_t variant);
// The variant's tunable values, in the order of Template.tunables.
std::span<const int64_t> Tunables(const Bundle& bundle, uint32_t variant);

// Whether the program has that instruction.
bool Uses(const fb::Index& index, const fb::Span& program, Opcode opcode);
// What a program of a template looks at that is not the same at all its points.
struct PointReads {
  bool tunables, lets;
  bool any() const { return tunables || lets; }
};
PointReads PointReadsOf(const fb::Index& index, const fb::Span& program);

// first, count: range of Index.code. kOutOfRange names `text` and the values of the op's symbols.
Result<int64_t> Evaluate(const EvalContext& context, uint32_t first, uint32_t count,
                         std::string_view text);

// Runs a verified program. No allocation.
Slot RunProgram(const EvalContext& context, const fb::Index& index, uint32_t first, uint32_t count);
inline Slot RunProgram(const EvalContext& context, const fb::Span& program) {
  return RunProgram(context, IndexOf(*context.bundle), program.first(), program.count());
}

// "`rows * K` overflows 64 bits with rows=.., K=.."
std::string DescribeEvalError(const EvalContext& context, SlotError error, std::string_view text);

// "K=64, rows=4", or "no symbols".
std::string SymbolValues(const Bundle& bundle, const Problem& problem);

// Index of the operand or result numbered `tensor` (operands first).
const TensorSpec& TensorOf(const Problem& problem, uint32_t tensor);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_EVAL_H_
