// A file of problems, one JSON object a line (problem_json.h): what kbundle.jax.record_problems
// saves.
#ifndef KBUNDLE_BUILDER_PROBLEM_FILE_H_
#define KBUNDLE_BUILDER_PROBLEM_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "kbundle/bundle.h"

namespace kbundle::builder {

// In the file's order; empty lines do not count. Errors name file and line: kNotFound when there is
// no such file or op, kInvalidArgument when a line is no problem of its op.
Result<std::vector<Problem>> ReadProblemFile(const std::string& path, const Bundle& bundle);
// The same of a text; `where` stands for the file's name.
Result<std::vector<Problem>> ParseProblems(std::string_view text, const std::string& where,
                                           const Bundle& bundle);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_FILE_H_
