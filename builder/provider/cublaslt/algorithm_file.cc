// The files are diffed and merged by people: lines have one order of keys and short numbers, and
// cut or conflicting ones are met with what to do about them. An algorithm's 64 bytes are kept as
// they came, for only cuBLASLt knows what they mean.
#include "builder/provider/cublaslt/algorithm_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "builder/record/record.h"
#include "builder/support/base64.h"
#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr size_t kAlgorithmBytes = sizeof(LtAlgorithm);

ListedAlgorithm FromJson(const Json& json) {
  ListedAlgorithm listed;
  json.at("op").get_to(listed.op);
  json.at("variant").get_to(listed.variant);
  json.at("types").get_to(listed.types);
  listed.problem = json.at("problem");
  json.at("rank").get_to(listed.rank);
  json.at("target").get_to(listed.target);
  json.at("device").at("name").get_to(listed.device);
  json.at("device").at("sm_count").get_to(listed.sm_count);
  json.at("cublas").get_to(listed.cublas);
  for (size_t i = 0; i < kConfigs; ++i) {
    json.at("config").at(kConfigNames[i]).get_to(listed.config[i]);
  }
  json.at("workspace").get_to(listed.workspace);
  json.at("limit").get_to(listed.limit);
  json.at("waves").get_to(listed.waves);
  return listed;
}

}  // namespace

std::string ListedAlgorithm::Line() const {
  Ordered settings;
  for (size_t i = 0; i < kConfigs; ++i) settings[kConfigNames[i]] = config[i];
  const std::string_view bytes(reinterpret_cast<const char*>(&algorithm), kAlgorithmBytes);
  const Ordered json{{"op", op},
                     {"variant", variant},
                     {"types", types},
                     {"problem", problem},
                     {"rank", rank},
                     {"target", target},
                     {"device", Ordered{{"name", device}, {"sm_count", sm_count}}},
                     {"cublas", cublas},
                     {"config", settings},
                     {"workspace", workspace},
                     {"limit", limit},
                     {"waves", Rounded(waves)},
                     {"algorithm", Base64(bytes)}};
  return json.dump();
}

std::string ListedAlgorithm::Key() const {
  return Json{op, variant, problem, target, device, cublas}.dump();
}

Result<ListedAlgorithm> ParseAlgorithm(std::string_view line, const std::string& where) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return InvalidArgument(where +
                           ": not a JSON object: a line cut short, or a merge conflict; list the "
                           "algorithms again with kbundle algorithms");
  }
  try {
    ListedAlgorithm listed = FromJson(json);
    const auto bytes = FromBase64(json.at("algorithm").get<std::string>());
    if (!bytes || bytes->size() != kAlgorithmBytes) {
      return InvalidArgument(
          fmt::format("{}: \"algorithm\" is no base64 of {} bytes", where, kAlgorithmBytes));
    }
    std::memcpy(&listed.algorithm, bytes->data(), kAlgorithmBytes);
    return listed;
  } catch (const Json::exception& wrong) {
    return InvalidArgument(
        fmt::format("{}: no line of kbundle algorithms: {}", where, wrong.what()));
  }
}

Result<std::vector<ListedAlgorithm>> ParseAlgorithms(std::string_view text,
                                                     const std::string& path) {
  std::vector<ListedAlgorithm> algorithms;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    KB_ASSIGN_OR_RETURN(ListedAlgorithm listed,
                        ParseAlgorithm(line, fmt::format("{}:{}", path, number)));
    algorithms.push_back(std::move(listed));
  }
  return algorithms;
}

Result<std::vector<ListedAlgorithm>> ReadAlgorithms(const std::string& folder) {
  std::set<std::string> files;
  const auto entries = ListFolder(folder);
  if (!entries.ok() && entries.status().code() == StatusCode::kNotFound) {
    return std::vector<ListedAlgorithm>();
  }
  if (!entries.ok()) return entries.status();
  for (const auto& entry : *entries) {
    if (entry.path().extension() == ".jsonl") files.insert(entry.path().string());
  }
  std::vector<ListedAlgorithm> all;
  for (const std::string& file : files) {
    KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    KB_ASSIGN_OR_RETURN(const std::vector<ListedAlgorithm> some, ParseAlgorithms(text, file));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::string AlgorithmsText(const std::vector<ListedAlgorithm>& algorithms) {
  std::set<std::string> lines;
  for (const ListedAlgorithm& listed : algorithms) lines.insert(listed.Line());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<ListedAlgorithm> MergeAlgorithms(const std::vector<ListedAlgorithm>& old,
                                             const std::vector<ListedAlgorithm>& fresh) {
  std::set<std::string> answered;
  for (const ListedAlgorithm& listed : fresh) answered.insert(listed.Key());
  std::vector<ListedAlgorithm> merged;
  std::map<std::pair<std::string, AlgorithmConfig>, LtAlgorithm> bytes;
  for (const ListedAlgorithm& listed : old) {
    if (answered.count(listed.Key()) == 0) merged.push_back(listed);
    bytes.try_emplace({listed.Key(), listed.config}, listed.algorithm);
  }
  for (ListedAlgorithm listed : fresh) {
    const auto known = bytes.find({listed.Key(), listed.config});
    if (known != bytes.end()) listed.algorithm = known->second;
    merged.push_back(std::move(listed));
  }
  return merged;
}

}  // namespace kbundle::builder
