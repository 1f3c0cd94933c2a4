// Lines are counted as an editor does, empty ones too, so that an error's number leads to its line.
// Another family's problem is told by the prefix of its op, before its contents are understood.
#include "builder/problem/file.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "builder/problem/json.h"
#include "builder/support/files.h"
#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

std::string_view FamilyOf(std::string_view op) { return op.substr(0, op.find('.')); }

std::set<std::string_view> FamiliesOf(const Bundle& bundle) {
  std::set<std::string_view> families;
  const auto* ops = IndexOf(bundle).ops();
  for (uint32_t i = 0; ops != nullptr && i < ops->size(); ++i) {
    families.insert(FamilyOf(ops->Get(i)->name()->string_view()));
  }
  return families;
}

bool IsOfAnother(const Json& json, const std::set<std::string_view>& families) {
  if (!json.is_object() || !json.contains("op") || !json["op"].is_string()) return false;
  return !families.contains(FamilyOf(json["op"].get_ref<const std::string&>()));
}

Result<Problem> ParseLine(const Json& json, const Bundle& bundle) {
  if (!json.is_discarded()) return ProblemFromJson(bundle, json);
  return InvalidArgument(
      "it is no JSON: cut short, or edited; record the problems again with "
      "kbundle.jax.record_problems");
}

}  // namespace

Result<std::vector<Problem>> ReadProblemFile(const std::string& path, const Bundle& bundle,
                                             int* passed_over) {
  KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseProblems(text, path, bundle, passed_over);
}

Result<std::vector<Problem>> ParseProblems(std::string_view text, const std::string& where,
                                           const Bundle& bundle, int* passed_over) {
  const std::set<std::string_view> families = FamiliesOf(bundle);
  std::vector<Problem> problems;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (passed_over != nullptr && IsOfAnother(json, families)) {
      ++*passed_over;
      continue;
    }
    Result<Problem> problem = ParseLine(json, bundle);
    if (!problem.ok()) {
      return std::move(problem).status().Annotate(fmt::format("{}:{}", where, number));
    }
    problems.push_back(std::move(*problem));
  }
  return problems;
}

std::string PassedOver(int count, const std::string& path) {
  if (count == 0) return "";
  return fmt::format("{} problem{} of other families in {} {} passed over", count,
                     count == 1 ? "" : "s", path, count == 1 ? "is" : "are");
}

}  // namespace kbundle::builder
