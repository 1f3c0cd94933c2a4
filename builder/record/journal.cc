// State is only ever the fold of events: a running tune writes an event and applies what it wrote,
// a resumed one applies what it reads, and so both stand at the same place. No line is ever edited;
// what is superseded (`anew`, other candidates) is forgotten by a later event.
#include "builder/record/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "builder/record/protocol.h"
#include "builder/record/schedule.h"
#include "builder/record/verdict.h"
#include "builder/support/json_text.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Status Wrong(const std::string& what) { return InvalidArgument("journal: " + what); }

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

int NumberIn(const Json& json, const char* key, int otherwise) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return otherwise;
  const auto number = found->get<int64_t>();
  return number < -1 || number > 1'000'000 ? otherwise : static_cast<int>(number);
}

bool SameCandidates(const ProblemLog& a, const ProblemLog& b) {
  return std::equal(a.candidates.begin(), a.candidates.end(), b.candidates.begin(),
                    b.candidates.end(), [](const CandidateLog& x, const CandidateLog& y) {
                      return x.variant == y.variant && x.fingerprint == y.fingerprint;
                    });
}

// Of numbers the least and the greatest, in five digits; of texts a sorted list.
void Widen(const Json& seen, Json* state) {
  if (!seen.is_object()) return;
  for (const auto& [key, value] : seen.items()) {
    std::vector<Json> range((*state)[key].begin(), (*state)[key].end());
    const bool number = value.is_number();
    if (!number && !value.is_string()) continue;
    range.push_back(value.is_number_float() ? Json(Rounded(value.get<double>())) : value);
    std::sort(range.begin(), range.end());
    range.erase(std::unique(range.begin(), range.end()), range.end());
    (*state)[key] = number ? Json{range.front(), range.back()} : Json(range);
  }
}

TuningRecord RecordOf(const TuningState& state, const JournalProblem& problem,
                      const TuningVerdict& verdict) {
  const ProblemLog& log = problem.log;
  TuningRecord record;
  record.op = TextOf(problem.problem, "op");
  record.problem = {{"operands", problem.problem.value("operands", Json::object())},
                    {"attributes", problem.problem.value("attributes", Json::object())}};
  record.target = state.target();
  record.device = problem.device;
  record.state = problem.state;
  record.protocol = kProtocol;
  record.winner = log.candidates[verdict.winner].variant;
  record.base = log.candidates[verdict.base].variant;
  record.verdict = VerdictName(verdict.kind);
  record.reason = verdict.reason;
  const std::vector<int> dropped = DroppedCandidates(log);
  const RoundTimes base = TimesOf(log.candidates[verdict.base].samples);
  for (int i : MeasuredCandidates(log.candidates.size(), log.seed)) {
    const CandidateLog& candidate = log.candidates[i];
    RecordCandidate row;
    row.variant = candidate.variant;
    row.fingerprint = candidate.fingerprint;
    row.workspace = candidate.workspace;
    row.failed = candidate.failed;
    if (!row.failed && candidate.samples.empty()) continue;
    if (row.failed && row.failed->kind == "refused") continue;  // it is for other problems
    if (!row.failed) {
      const RoundTimes times = TimesOf(candidate.samples);
      const Quartiles ns = QuartilesOf(times);
      row.us = Quartiles{ns.low / 1e3, ns.median / 1e3, ns.high / 1e3};
      const Comparison versus = Compare(times, base);
      row.ratio = versus.ratio;
      row.band = i == verdict.base ? 0 : versus.band;
      for (const auto& [round, ns_of_round] : candidate.samples) {
        row.samples += static_cast<int>(ns_of_round.size());
      }
      row.dropped = std::binary_search(dropped.begin(), dropped.end(), i);
    }
    record.candidates.push_back(std::move(row));
  }
  return record;
}

}  // namespace

Json StartEvent(const std::string& target, const Json& device, uint64_t seed) {
  return {{"event", "start"},
          {"protocol", kProtocol},
          {"seed", seed},
          {"target", target},
          {"device", device}};
}

Json ProblemEvent(int number, const Json& problem,
                  const std::vector<std::pair<std::string, std::string>>& candidates, bool anew) {
  Json list = Json::array();
  for (const auto& [variant, fingerprint] : candidates) {
    list.push_back(Json::array({variant, fingerprint}));
  }
  Json event = {
      {"event", "problem"}, {"number", number}, {"problem", problem}, {"candidates", list}};
  if (anew) event["anew"] = true;
  return event;
}

Json CheckedEvent(int number, const std::string& variant, int64_t workspace) {
  return {{"event", "checked"}, {"number", number}, {"variant", variant}, {"workspace", workspace}};
}

Json FailedEvent(int number, const std::string& variant, int round,
                 const CandidateFailure& failure) {
  return {{"event", "failed"},
          {"number", number},
          {"variant", variant},
          {"round", round},
          {"kind", failure.kind},
          {"detail", failure.detail},
          {"reproduce", failure.reproduce}};
}

Json SamplesEvent(int number, const std::string& variant, int round, const std::vector<double>& ns,
                  const Json& state) {
  Json rounded = Json::array();
  for (double value : ns) {
    rounded.push_back(std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr));
  }
  return {{"event", "samples"}, {"number", number}, {"variant", variant},
          {"round", round},     {"ns", rounded},    {"state", state}};
}

Json PublishedEvent() { return {{"event", "published"}}; }

Json DoneEvent(int number) { return {{"event", "done"}, {"number", number}}; }

// Bytes of a compiler's or a driver's message that are no UTF-8 must not end the tune.
std::string EventLine(const Json& event) { return JsonText(event) + "\n"; }

int TuningState::NumberOf(const Json& problem) const {
  for (size_t i = 0; i < problems_.size(); ++i) {
    if (problems_[i].problem == problem) return static_cast<int>(i);
  }
  return static_cast<int>(problems_.size());
}

bool TuningState::HasUnfinished() const {
  return std::any_of(problems_.begin(), problems_.end(), [](const JournalProblem& problem) {
    const auto& candidates = problem.log.candidates;
    const bool begun = std::any_of(candidates.begin(), candidates.end(), [](const auto& one) {
      return one.checked || !one.samples.empty();
    });
    return begun && NextStep(problem.log).kind != TuningStep::Kind::kDone;
  });
}

Status TuningState::Apply(const Json& event) {
  if (!event.is_object()) return Wrong("an event that is no object");
  const std::string kind = TextOf(event, "event");
  if (kind == "start") return ApplyStart(event);
  if (!started_) return Wrong("it does not begin with a start event");
  if (kind == "problem") return ApplyProblem(event);
  if (kind == "published") {
    for (JournalProblem& problem : problems_) {
      problem.published |= NextStep(problem.log).kind == TuningStep::Kind::kDone;
    }
    return Status();
  }
  if (kind == "checked" || kind == "failed" || kind == "samples" || kind == "done") {
    return ApplyMeasurement(kind, event);
  }
  return Wrong(fmt::format("unknown event \"{}\"; it is of another version: delete it", kind));
}

Status TuningState::ApplyStart(const Json& event) {
  const std::string target = TextOf(event, "target");
  const auto device = event.find("device");
  const auto seed = event.find("seed");
  if (NumberIn(event, "protocol", 0) != kProtocol) {
    return Wrong(fmt::format("of another protocol than {}; move the journal away", kProtocol));
  }
  if (target.empty() || device == event.end() || !device->is_object() ||
      TextOf(*device, "name").empty() || seed == event.end() || !seed->is_number_unsigned()) {
    return Wrong("a start event without target, device or seed");
  }
  if (started_ && (target != target_ || TextOf(*device, "name") != TextOf(device_, "name"))) {
    return FailedPrecondition(
        fmt::format("journal: measured for {} on {}, this is {} on {}; move the journal away",
                    target_, TextOf(device_, "name"), target, TextOf(*device, "name")));
  }
  if (started_ && seed->get<uint64_t>() != seed_) {
    return Wrong(fmt::format("of seed {}, this is {}; use the same or move the journal away", seed_,
                             seed->get<uint64_t>()));
  }
  device_ = *device;
  started_ = true;
  target_ = target;
  seed_ = seed->get<uint64_t>();
  return Status();
}

Status TuningState::ApplyProblem(const Json& event) {
  const int number = NumberIn(event, "number", -1);
  const auto problem = event.find("problem");
  const auto candidates = event.find("candidates");
  if (problem == event.end() || !problem->is_object() || TextOf(*problem, "op").empty() ||
      candidates == event.end() || !candidates->is_array() || NumberOf(*problem) != number) {
    return Wrong("a problem event without its number, problem or candidates");
  }
  JournalProblem fresh;
  fresh.problem = *problem;
  fresh.log.seed = seed_;
  fresh.device = device_;  // a record carries the facts of the session that began it
  for (const Json& pair : *candidates) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return Wrong("a candidate that is no pair of variant and fingerprint");
    }
    CandidateLog& candidate = fresh.log.candidates.emplace_back();
    candidate.variant = pair[0];
    candidate.fingerprint = pair[1];
  }
  if (static_cast<size_t>(number) == problems_.size()) {
    problems_.push_back(std::move(fresh));
  } else if (event.value("anew", false) || !SameCandidates(problems_[number].log, fresh.log)) {
    problems_[number] = std::move(fresh);
  }
  return Status();
}

Status TuningState::ApplyMeasurement(const std::string& kind, const Json& event) {
  const int number = NumberIn(event, "number", -1);
  if (number < 0 || static_cast<size_t>(number) >= problems_.size()) {
    return Wrong(fmt::format("a {} event of an unknown problem", kind));
  }
  JournalProblem& problem = problems_[number];
  if (kind == "done") {
    problem.done = true;
    return Status();
  }
  const std::string variant = TextOf(event, "variant");
  const auto found =
      std::find_if(problem.log.candidates.begin(), problem.log.candidates.end(),
                   [&](const CandidateLog& candidate) { return candidate.variant == variant; });
  if (found == problem.log.candidates.end()) {
    return Wrong(fmt::format("a {} event of \"{}\", which is no candidate", kind, variant));
  }
  const int round = NumberIn(event, "round", -1);
  if (kind == "checked") {
    found->checked = true;
    found->workspace = event.value("workspace", int64_t{0});
  } else if (kind == "failed") {
    found->failed = CandidateFailure{TextOf(event, "kind"), TextOf(event, "detail"),
                                     TextOf(event, "reproduce")};
    found->failed_round = round;
  } else {
    const auto ns = event.find("ns");
    if (round < 0 || ns == event.end() || !ns->is_array() || ns->empty()) {
      return Wrong("a samples event without round or times");
    }
    std::vector<double> values;
    for (const Json& value : *ns) {
      values.push_back(value.is_number() ? value.get<double>() : std::nan(""));
      if (std::isfinite(values.back()) && values.back() > 0) continue;
      return Wrong(fmt::format("a time of {}: above zero is wanted", value.dump()));
    }
    found->samples[round] = std::move(values);
    if (const auto seen = event.find("state"); seen != event.end()) Widen(*seen, &problem.state);
  }
  return Status();
}

Result<ReplayedJournal> Replay(std::string_view text, const std::string& path) {
  ReplayedJournal replayed;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // cut by a kill: its measurement is taken again
    ++number;
    const Json event = Json::parse(text.substr(begin, end - begin), nullptr, false);
    Status status = event.is_discarded() ? Wrong("a line that is no JSON; delete the journal")
                                         : replayed.state.Apply(event);
    if (!status.ok()) return std::move(status).Annotate(fmt::format("{}:{}", path, number));
    begin = replayed.good_bytes = end + 1;
  }
  return replayed;
}

std::vector<TuningRecord> Conclude(const TuningState& state) {
  std::vector<TuningRecord> records;
  for (const JournalProblem& problem : state.problems()) {
    if (problem.published || NextStep(problem.log).kind != TuningStep::Kind::kDone) continue;
    const TuningVerdict verdict = Judge(problem.log);
    if (verdict.winner < 0) continue;
    records.push_back(RecordOf(state, problem, verdict));
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.Key() < b.Key(); });
  return records;
}

}  // namespace kbundle::builder
