// The problems of a file as listed problems of their ops.
#ifndef KBUNDLE_BUILDER_PROBLEM_ADD_H_
#define KBUNDLE_BUILDER_PROBLEM_ADD_H_

#include <string>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/bundle.h"

namespace kbundle::builder {

// Appends to Op::problems what is not listed there yet, each once, sorted by what the problem is,
// so that the order of the file's lines does not matter. `bundle` has these families' interfaces.
// How many problems are of other families, and were passed over. Errors name file and line.
Result<int> AddProblems(const std::string& path, const Bundle& bundle,
                        std::vector<Family>* families);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_ADD_H_
