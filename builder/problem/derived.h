// More problems of an op than its manifest lists: the same structure at small, odd and edge sizes.
//
// Nothing is known about the op but its interface. Sizes are changed by whole groups of equal
// values, so that what must agree still does, and one symbol at a time; the loader then says which
// of the results are problems of the op at all.
#ifndef KBUNDLE_BUILDER_PROBLEM_DERIVED_H_
#define KBUNDLE_BUILDER_PROBLEM_DERIVED_H_

#include <vector>

#include "builder/model/family.h"
#include "kbundle/problem.h"

namespace kbundle::builder {

// A listed problem, and what it is with each of the optional operands there or not there instead.
std::vector<OpProblem> StructuresOf(const Op& op, const OpProblem& listed);

// Requests made from one of those, of these types and with the attributes of `request`, each once;
// none with an operand of more than `max_elements`. An edge is on either side of a number that the
// conditions of the op's variants compare with.
std::vector<ProblemSpec> DerivedSpecs(const Op& op, const OpProblem& listed,
                                      const ProblemSpec& request, const std::vector<DType>& types,
                                      int64_t max_elements);

// Equal texts: the same operands are there, the same sizes are equal, the attributes are the same,
// so that the same problems would be made.
std::string StructureOf(const Op& op, const OpProblem& listed);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_DERIVED_H_
