// Facts are about a digest, not about a variant's name: code that changes loses them by itself, and
// code that two variants share has them once. What was wrong today takes away what was right
// before.
#include "builder/pack/ran_on_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

std::string PathOf(const Family& family) { return family.directory + "/ran_on.jsonl"; }

Result<std::vector<RanOnFact>> ReadFacts(const std::string& path) {
  std::vector<RanOnFact> facts;
  const Result<std::string> text = ReadFile(path);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return facts;
  if (!text.ok()) return text.status();
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const Json row = Json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("device") || !row["device"].is_string() ||
        !row.contains("sha256") || !row["sha256"].is_string()) {
      return InvalidArgument(
          fmt::format("{}:{}: not a line like {{\"device\": \"NVIDIA H200\", "
                      "\"sha256\": \"...\"}}",
                      path, number));
    }
    facts.push_back({row["device"], row["sha256"]});
  }
  return facts;
}

}  // namespace

Result<std::vector<RanOnFact>> ReadRanOn(const std::vector<Family>& families) {
  std::vector<RanOnFact> all;
  for (const Family& family : families) {
    KB_ASSIGN_OR_RETURN(const std::vector<RanOnFact> facts, ReadFacts(PathOf(family)));
    all.insert(all.end(), facts.begin(), facts.end());
  }
  return all;
}

Result<std::string> UpdateRanOn(const Family& family, const RanOnNews& news) {
  const std::string path = PathOf(family);
  KB_ASSIGN_OR_RETURN(const std::vector<RanOnFact> before, ReadFacts(path));
  std::set<std::pair<std::string, std::string>> facts;
  for (const RanOnFact& fact : before) {
    const bool disproved = news.devices.contains(fact.device) && news.wrong.contains(fact.sha256);
    if (!disproved) facts.emplace(fact.device, fact.sha256);
  }
  for (const std::string& device : news.devices) {
    for (const std::string& digest : news.right) facts.emplace(device, digest);
  }
  if (facts.empty() && before.empty()) return std::string();
  std::string text;
  for (const auto& [device, digest] : facts) {
    text += fmt::format("{{\"device\": {}, \"sha256\": \"{}\"}}\n", Json(device).dump(), digest);
  }
  KB_RETURN_IF_ERROR(PublishFile(path, text, Durability::kDisk));
  return path;
}

}  // namespace kbundle::builder
