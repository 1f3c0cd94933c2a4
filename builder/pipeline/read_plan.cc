// One unit out of a file that may hold anything: the others are dropped while it is parsed, and no
// depth, number or size of what it holds costs more than the file's own length.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "builder/pipeline/build_plan.h"
#include "builder/pipeline/compile_unit.h"
#include "builder/support/files.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using PlanJson = nlohmann::json;

constexpr uint64_t kMostPlanBytes = 128ull << 20;
constexpr int kDeepest = 8;
constexpr size_t kLongestWord = 4096;

// What is wrong with the plan, in words; caught in this file.
struct NoPlan {
  std::string what;
};

// Keeps of the document's keys those that are read, and of its units one.
class UnitPicker {
 public:
  explicit UnitPicker(uint64_t number) : number_(number) {}
  uint64_t units() const { return units_; }

  bool operator()(int depth, PlanJson::parse_event_t event, PlanJson& parsed) {
    using Event = PlanJson::parse_event_t;
    if (depth > kDeepest) throw NoPlan{fmt::format("nested deeper than {} levels", kDeepest)};
    if (event == Event::key && depth == 1) {
      key_ = parsed.get<std::string>();
      return key_ == "build_plan" || key_ == "providers" || key_ == "problems" ||
             key_ == "python" || key_ == "units";
    }
    const bool ends =
        event == Event::object_end || event == Event::array_end || event == Event::value;
    if (key_ != "units" || depth != 2 || !ends) return true;
    return units_++ == number_;
  }

 private:
  const uint64_t number_;
  uint64_t units_ = 0;
  std::string key_;
};

const PlanJson& At(const PlanJson& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw NoPlan{fmt::format("there is no \"{}\"", key)};
  return *found;
}

std::string WordAt(const PlanJson& json, const char* what) {
  if (!json.is_string()) throw NoPlan{fmt::format("\"{}\" is no text", what)};
  std::string word = json.get<std::string>();
  if (word.size() > kLongestWord || word.find('\0') != std::string::npos) {
    throw NoPlan{fmt::format("\"{}\" is no word of at most {} bytes", what, kLongestWord)};
  }
  return word;
}

std::vector<std::string> WordsAt(const PlanJson& json, const char* what) {
  if (!json.is_array()) throw NoPlan{fmt::format("\"{}\" is no list", what)};
  std::vector<std::string> words;
  for (const PlanJson& word : json) words.push_back(WordAt(word, what));
  return words;
}

// A plan speaks of the tree that it is used in, or of an absolute place.
void CheckPlace(const std::string& path, const char* what) {
  for (const auto& part : std::filesystem::path(path)) {
    if (part != "..") continue;
    throw NoPlan{fmt::format("\"{}\" has '{}', which leaves the folder by '..'", what, path)};
  }
}

bool IsDigest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

PlannedUnit UnitOf(const PlanJson& plan, const PlanJson& unit) {
  PlannedUnit planned;
  planned.options.providers = WordsAt(At(plan, "providers"), "providers");
  planned.options.problems = WordAt(At(plan, "problems"), "problems");
  CheckPlace(planned.options.problems, "problems");
  planned.options.python = WordAt(At(plan, "python"), "python");
  planned.options.paths = WordsAt(At(unit, "manifests"), "manifests");
  if (planned.options.paths.empty()) throw NoPlan{"\"manifests\" is empty"};
  for (const std::string& path : planned.options.paths) CheckPlace(path, "manifests");
  planned.options.targets = {WordAt(At(unit, "target"), "target")};
  if (const auto target = Target::Parse(planned.options.targets[0]); !target.ok()) {
    throw NoPlan{"\"target\": " + target.status().message()};
  }
  planned.wanted.label = WordAt(At(unit, "unit"), "unit");
  planned.wanted.key = WordAt(At(unit, "key"), "key");
  if (planned.wanted.label.empty()) throw NoPlan{"\"unit\" is empty"};
  if (!IsDigest(planned.wanted.key)) throw NoPlan{"\"key\" is no SHA-256 in hexadecimal"};
  const PlanJson& inputs = At(unit, "inputs");
  if (!inputs.is_array() || inputs.empty()) throw NoPlan{"\"inputs\" is no list of inputs"};
  for (const PlanJson& input : inputs) {
    if (!input.is_object()) throw NoPlan{"an input is no object"};
    std::string name = WordAt(At(input, "name"), "name");
    std::string digest = WordAt(At(input, "digest"), "digest");
    if (!IsDigest(digest)) throw NoPlan{"\"digest\" is no SHA-256 in hexadecimal"};
    planned.wanted.inputs.emplace_back(std::move(name), std::move(digest));
  }
  return planned;
}

Result<PlannedUnit> Parse(const std::string& text, uint64_t number) {
  UnitPicker picker(number);
  const PlanJson plan = PlanJson::parse(text, std::ref(picker));
  if (!plan.is_object() || !plan.contains("build_plan")) throw NoPlan{"it is no build plan"};
  if (plan["build_plan"] != kBuildPlanVersion) {
    throw NoPlan{fmt::format("its layout is version {}, this kbundle reads {}",
                             plan["build_plan"].dump(), kBuildPlanVersion)};
  }
  const PlanJson& units = At(plan, "units");
  if (!units.is_array()) throw NoPlan{"\"units\" is no list"};
  if (number >= picker.units()) {
    return NotFound(fmt::format("there is no unit {}: the plan has {}{}", number, picker.units(),
                                picker.units() == 0 ? "" : ", the first is 0"));
  }
  if (units.size() != 1 || !units[0].is_object()) throw NoPlan{"it is no object"};
  try {
    return UnitOf(plan, units[0]);
  } catch (NoPlan& wrong) {
    throw NoPlan{fmt::format("unit {}: {}", number, wrong.what)};
  }
}

}  // namespace

Result<PlannedUnit> ReadPlannedUnit(const std::string& path, uint64_t number) {
  const std::string where = "reading the plan " + path;
  Result<std::string> text = ReadFile(path, kMostPlanBytes);
  if (!text.ok()) return std::move(text).status().Annotate(where);
  std::string wrong;
  try {
    Result<PlannedUnit> unit = Parse(*text, number);
    if (!unit.ok()) return std::move(unit).status().Annotate(where);
    return unit;
  } catch (const NoPlan& error) {
    wrong = error.what;
  } catch (const PlanJson::exception& error) {
    wrong = error.what();
  }
  return InvalidArgument(where + ": " + wrong + "; `kbundle build PATH --plan` prints one");
}

}  // namespace kbundle::builder
