// A command of words, not of a file's contents: it can be read, edited and run by hand, and its
// digests let the other end say what differs there.
#include "builder/pipeline/unit_command.h"

#include <algorithm>
#include <filesystem>

namespace kbundle::builder {
namespace {

constexpr size_t kShortDigest = 16;

void AddOption(const char* name, const std::string& value, std::vector<std::string>* words) {
  if (value.empty()) return;
  words->emplace_back(name);
  words->push_back(value);
}

}  // namespace

std::string PathForOthers(const std::string& path) {
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  if (normal.empty() || *normal.begin() != "..") return normal.string();
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(normal, error);
  return error ? path : absolute.lexically_normal().string();
}

std::vector<std::string> ManifestsOf(const Unit& unit, const std::vector<Family>& families) {
  std::vector<std::string> manifests;
  for (const Family& family : families) {
    if (family.directory != unit.family->directory) continue;
    manifests.push_back(PathForOthers(family.manifest_path));
  }
  return manifests;
}

NamedDigests InputsOf(const UnitInputs& inputs) {
  NamedDigests all = inputs.named;
  if (!inputs.toolkit.empty()) all.emplace_back(kToolkitHeaders, inputs.toolkit);
  return all;
}

std::vector<std::string> UnitCommand(const BuildOptions& options, const Unit& unit,
                                     const UnitInputs& inputs, const std::vector<Family>& families,
                                     bool with_inputs) {
  std::vector<std::string> words = {"kbundle", "compile-unit"};
  const std::vector<std::string> manifests = ManifestsOf(unit, families);
  words.insert(words.end(), manifests.begin(), manifests.end());
  AddOption("--target", unit.target.ToString(), &words);
  for (const std::string& provider : options.providers) AddOption("--provider", provider, &words);
  AddOption("--problems", options.problems.empty() ? "" : PathForOthers(options.problems), &words);
  AddOption("--python", options.python, &words);
  AddOption("--unit", unit.label, &words);
  AddOption("--key", inputs.key, &words);
  for (const auto& [name, digest] : with_inputs ? InputsOf(inputs) : NamedDigests()) {
    AddOption("--input", name + "=" + digest.substr(0, kShortDigest), &words);
  }
  return words;
}

}  // namespace kbundle::builder
