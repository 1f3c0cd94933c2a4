// A file of problems, one JSON object a line (problem/json.h): what kbundle.jax.record_problems
// saves.
#ifndef KBUNDLE_BUILDER_PROBLEM_FILE_H_
#define KBUNDLE_BUILDER_PROBLEM_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "kbundle/bundle.h"

namespace kbundle::builder {

// In the file's order; empty lines do not count. Errors name file and line: kNotFound when there is
// no such file or op, kInvalidArgument when a line is no problem of its op. With `passed_over`,
// problems of families that the bundle does not have are counted there instead: a model's file is
// about all of its families, a command often about one.
Result<std::vector<Problem>> ReadProblemFile(const std::string& path, const Bundle& bundle,
                                             int* passed_over = nullptr);
// The same of a text; `where` stands for the file's name.
Result<std::vector<Problem>> ParseProblems(std::string_view text, const std::string& where,
                                           const Bundle& bundle, int* passed_over = nullptr);

// "3 problems of other families in model.jsonl are passed over", to say to the user; "" of none.
std::string PassedOver(int count, const std::string& path);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROBLEM_FILE_H_
