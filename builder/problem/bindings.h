// What the names of an op stand for in one of its listed problems.
#ifndef KBUNDLE_BUILDER_PROBLEM_BINDINGS_H_
#define KBUNDLE_BUILDER_PROBLEM_BINDINGS_H_

#include "builder/expression/evaluate.h"
#include "builder/model/family.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Types, symbols, attributes and tensors (results with their presence, without dims); no tunables,
// no lets. The problem must be one of the op's, or read against its interface.
Bindings BindingsOf(const Op& op, const OpProblem& problem);
// The same in two steps into `bindings`, whose memory is used again: attributes, then, by these,
// the rest. What is not named above stays as it is.
void BindAttributes(const Op& op, const std::vector<ProblemAttribute>& given, Bindings* bindings);
void BindTensors(const Op& op, const std::vector<ProblemTensor>& operands, Bindings* bindings);
// The values of a variant's lets, in place of any before. kOutOfRange: one has none ("'K / H'
// divides by zero").
Status AddLets(const Template& variant, Bindings* bindings);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_BINDINGS_H_
