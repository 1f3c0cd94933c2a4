// Selection is asked twice of each problem, as every process chooses and as a strict one does:
// where they differ, conformance has something to run.
#include "builder/specialize/model_choice.h"

#include <nlohmann/json.hpp>

#include "builder/problem/file.h"
#include "builder/support/files.h"
#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

void AddRecord(const Bundle& bundle, const Selected& chosen, const std::string& recorded_as,
               ModelChoice* choice) {
  if (chosen.tuned < 0) return;
  const fb::Index& index = IndexOf(bundle);
  const fb::Tuned& row = *index.tuned()->Get(static_cast<uint32_t>(chosen.tuned));
  const auto& name = *index.tuned_devices()->Get(row.device());
  choice->tuned_here = chosen.choice == Choice::kTuned && name.string_view() == recorded_as;
  if (chosen.choice != Choice::kTuned) return;
  const auto* times = index.evidence()->Get(row.evidence())->times();
  for (uint32_t i = 0; times != nullptr && i < times->size(); ++i) {
    const fb::TunedTime& time = *times->Get(i);
    if (time.median() > 0) choice->us[bundle.VariantId(time.variant())] = time.median();
  }
}

ModelChoice ChoiceFor(const Bundle& bundle, const Problem& problem, const Device& device,
                      const std::string& recorded_as) {
  ModelChoice choice{.problem = problem.ToString()};
  choice.empty = problem.AllResultsEmpty();
  const auto chosen = SelectFirstLaunchable(bundle, problem, device);
  if (!chosen.ok()) {
    choice.how = chosen.status().message();
    return choice;
  }
  choice.variant = bundle.VariantId(chosen->variant);
  choice.how = ChoiceName(chosen->choice);
  AddRecord(bundle, *chosen, recorded_as, &choice);
  SelectOptions strict;
  strict.policy.strict = true;
  strict.policy.allow_portable = false;
  const auto strictly = SelectFirstLaunchable(bundle, problem, device, strict);
  choice.runs_strict = strictly.ok() && strictly->variant == chosen->variant;
  return choice;
}

}  // namespace

Result<std::vector<ModelChoice>> ChoicesFor(const Bundle& bundle, const std::string& model,
                                            const Device& device, const std::string& recorded_as) {
  int others = 0;
  KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ReadProblemFile(model, bundle, &others));
  std::vector<ModelChoice> choices;
  for (const Problem& problem : problems) {
    choices.push_back(ChoiceFor(bundle, problem, device, recorded_as));
  }
  return choices;
}

Result<std::vector<ModelChoice>> ReadChoices(const std::string& path, const std::string& key) {
  std::vector<ModelChoice> choices;
  const Result<std::string> text = ReadFile(path);
  if (text.status().code() == StatusCode::kNotFound) return choices;
  KB_RETURN_IF_ERROR(text.status());
  try {
    const Json json = Json::parse(*text);
    if (json.at("key").get<std::string>() != key) return choices;
    for (const Json& row : json.at("choices")) {
      choices.push_back(
          {.problem = row.at("problem"), .variant = row.at("variant"), .how = row.at("how")});
    }
  } catch (const Json::exception&) {
    return FailedPrecondition(path +
                              ": it is not what kbundle specialize keeps there of a run that has "
                              "not ended; move it away");
  }
  return choices;
}

Status WriteChoices(const std::string& path, const std::string& key,
                    const std::vector<ModelChoice>& choices) {
  Json rows = Json::array();
  for (const ModelChoice& one : choices) {
    rows.push_back({{"problem", one.problem}, {"variant", one.variant}, {"how", one.how}});
  }
  const std::string text = Json{{"key", key}, {"choices", rows}}.dump(1) + "\n";
  return PublishFile(path, text, Durability::kDisk);
}

}  // namespace kbundle::builder
