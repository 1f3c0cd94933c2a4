// An explanation is asked for where there is no GPU as well, so what would be launched is
// computed by Resolve, which needs no device; why it cannot be is part of the answer, not an
// error.
#include <algorithm>
#include <utility>

#include "kbundle/describe.h"
#include "kbundle/json.h"
#include "loader/describe/op_json.h"
#include "loader/resolve/launch_json.h"
#include "loader/resolve/resolve.h"

namespace kbundle {
namespace {

void WriteTuned(JsonWriter& json, const TunedDescription& tuned) {
  json.BeginObject().Key("problem").Text(tuned.problem).Key("device").Text(tuned.device);
  json.Key("winner").Text(tuned.winner).Key("default").Text(tuned.base);
  json.Key("verdict").Text(tuned.verdict).Key("reason").Text(tuned.reason);
  json.Key("times").BeginArray();
  for (const TunedTimes& times : tuned.times) {
    json.BeginObject().Key("id").Text(times.id).Key("us").BeginArray();
    json.Number(times.low_us).Number(times.median_us).Number(times.high_us).EndArray();
    json.Key("versus_default").BeginArray().Number(times.ratio).Number(times.band).EndArray();
    json.Key("dropped").Bool(times.dropped).Key("failed").Bool(times.failed).EndObject();
  }
  json.EndArray().EndObject();
}

// The value of "launch" (kbundle_c.h, kb_explain): an object, with "error" where the variant cannot
// be launched for this problem. Needs no device.
void WriteLaunch(JsonWriter& json, const Bundle& bundle, const Problem& problem,
                 const Device& device, uint32_t variant, int64_t alignment) {
  json.BeginObject().Key("alignment").Int(alignment).Key("sm_count").Int(device.sm_count);
  const Result<Resolution> resolution = Resolve(bundle, problem, device, variant, alignment);
  if (resolution.ok()) {
    LaunchJson(json, bundle, problem, variant).Write(*resolution);
  } else {
    json.Key("error").Text(resolution.status().message());
  }
  json.EndObject();
}

// bundle, problem: of the part that serves.
std::string JsonOfExplanation(const Explanation& explanation, const Bundle& bundle,
                              const Problem& problem, const Device& device, int64_t alignment) {
  const auto& chosen = explanation.chosen;
  JsonWriter json;
  json.BeginObject().Key("problem").Text(explanation.problem);
  json.Key("target").Text(explanation.target).Key("chosen");
  chosen ? json.Text(explanation.id) : json.Null();
  json.Key("choice");
  chosen ? json.Text(ChoiceName(chosen->choice)) : json.Null();
  json.Key("workspace_bytes");
  explanation.workspace_bytes ? json.Int(*explanation.workspace_bytes) : json.Null();
  json.Key("part");
  chosen ? json.Text(explanation.part) : json.Null();
  json.Key("needs");
  explanation.needs.empty() ? json.Null() : json.Text(explanation.needs);
  json.Key("launch");
  if (chosen) {
    WriteLaunch(json, bundle, problem, device, chosen->variant, alignment);
  } else {
    json.Null().Key("error").Text(explanation.error);
  }
  json.Key("tuned");
  explanation.tuned ? WriteTuned(json, *explanation.tuned) : void(json.Null());
  json.Key("candidates").BeginArray();
  for (const CandidateDescription& candidate : explanation.candidates) {
    json.BeginObject().Key("id").Text(candidate.id).Key("legal").Bool(candidate.legal);
    json.Key("reason").Text(candidate.reason).EndObject();
  }
  json.EndArray();
  WriteAbsent(json, explanation.missed);
  return std::move(json.EndObject()).text();
}

}  // namespace

std::string ExplainJson(const Bundle& bundle, const Problem& problem, const Device& device,
                        const SelectOptions& options) {
  const Explanation explanation = ExplainProblem(bundle, problem, device, options);
  return JsonOfExplanation(explanation, bundle, problem, device, options.alignment);
}

std::string ExplainJson(const Parts& parts, const Problem& problem, const Device& device,
                        const SelectOptions& options) {
  const Explanation explanation = ExplainProblem(parts, problem, device, options);
  const auto& all = parts.all();
  const auto serves = [&](const auto& bundle) { return bundle->path() == explanation.part; };
  const size_t part = std::find_if(all.begin(), all.end(), serves) - all.begin();
  const Result<Problem> of_part = parts.ProblemIn(part == all.size() ? 0 : part, problem);
  return JsonOfExplanation(explanation, part == all.size() ? parts.first() : *all[part],
                           of_part.ok() ? *of_part : problem, device, options.alignment);
}

}  // namespace kbundle
