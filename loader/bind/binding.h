// The steps of MakeProblem. Each fills its part of `problem`, which holds the parts before it.
#ifndef KBUNDLE_LOADER_BINDING_H_
#define KBUNDLE_LOADER_BINDING_H_

#include "kbundle/bundle.h"
#include "kbundle/format.h"
#include "kbundle/problem.h"
#include "loader/bind/eval.h"

namespace kbundle {

// "bool", "int[]", ...: as a manifest spells it.
const char* AttributeTypeName(AttributeType type);
// problem->attributes: given ones converted, defaults filled in.
Status BindAttributes(const fb::Op& op, const ProblemSpec& spec, Problem* problem);
// problem->types from dtype attributes and the dtypes of present operands. Checks every dtype.
Status BindTypes(const fb::Op& op, Problem* problem);
// problem->symbols from the operands' dims; checks ranks, relations, strides.
Status BindShapes(const Bundle& bundle, const fb::Op& op, Problem* problem);
// problem->results.
Status InferResults(const Bundle& bundle, const fb::Op& op, Problem* problem);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_BINDING_H_
