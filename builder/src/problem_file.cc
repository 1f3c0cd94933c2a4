#include "problem_file.h"

#include <fmt/format.h>

#include <utility>

#include "files.h"
#include "problem_json.h"

namespace kbundle::builder {
namespace {

Result<Problem> ParseLine(std::string_view line, const Bundle& bundle) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) return ProblemFromJson(bundle, json);
  return InvalidArgument(
      "it is no JSON: cut short, or edited; record the problems again with "
      "kbundle.jax.record_problems");
}

}  // namespace

Result<std::vector<Problem>> ReadProblemFile(const std::string& path, const Bundle& bundle) {
  KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseProblems(text, path, bundle);
}

Result<std::vector<Problem>> ParseProblems(std::string_view text, const std::string& where,
                                           const Bundle& bundle) {
  std::vector<Problem> problems;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<Problem> problem = ParseLine(line, bundle);
    if (!problem.ok()) {
      return std::move(problem).status().Annotate(fmt::format("{}:{}", where, number));
    }
    problems.push_back(std::move(*problem));
  }
  return problems;
}

}  // namespace kbundle::builder
