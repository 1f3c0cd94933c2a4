#include "tuning_journal.h"

#include <fmt/format.h>

#include <cmath>

#include "tuning_protocol.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Status Damaged(int line, const std::string& what) {
  return DataLoss(fmt::format("line {} of the journal {}: remove the file to begin anew, or restore it",
                              line, what));
}

bool ReadEvent(const Json& json, JournalEvent* event) {
  const auto text = [&](const char* key, std::string* value) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return false;
    *value = found->get<std::string>();
    return true;
  };
  if (!text("problem", &event->problem) || !text("variant", &event->variant) ||
      !text("fingerprint", &event->fingerprint)) {
    return false;
  }
  if (const auto round = json.find("round"); round != json.end()) {
    if (!round->is_number_integer() || *round < 0 || *round >= kTuningRounds) return false;
    event->round = round->get<int>();
  }
  if (const auto failed = json.find("failed"); failed != json.end()) {
    if (!failed->is_object()) return false;
    event->failure = {failed->value("kind", ""), failed->value("message", ""),
                      failed->value("command", "")};
  }
  for (const Json& ns : json.value("ns", Json::array())) {
    if (!ns.is_number() || !(ns.get<double>() > 0)) return false;
    event->ns.push_back(ns.get<double>());
  }
  if (const auto state = json.find("state"); state != json.end()) event->state = *state;
  return event->failure || event->round < 0 || !event->ns.empty();
}

bool ReadHead(const Json& json, JournalHead* head) {
  if (!json.is_object() || !json.contains("protocol") || !json["protocol"].is_number_integer())
    return false;
  *head = {json.value("target", ""), json.value("device", ""), json["protocol"].get<int>()};
  return true;
}

}  // namespace

std::string FormatHead(const JournalHead& head) {
  return Json({{"target", head.target}, {"device", head.device}, {"protocol", head.protocol}})
             .dump() +
         "\n";
}

std::string FormatEvent(const JournalEvent& event) {
  Json json = {{"problem", event.problem},
               {"variant", event.variant},
               {"fingerprint", event.fingerprint}};
  if (event.round >= 0) json["round"] = event.round;
  if (event.failure) {
    json["failed"] = {{"kind", event.failure->kind},
                      {"message", event.failure->message},
                      {"command", event.failure->command}};
  }
  if (!event.ns.empty()) json["ns"] = event.ns;
  if (!event.state.is_null()) json["state"] = event.state;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Journal> ParseJournal(std::string_view text) {
  Journal journal;
  int line = 0;
  while (journal.bytes < text.size()) {
    const size_t end = text.find('\n', journal.bytes);
    if (end == std::string_view::npos) break;  // the kill came while this line was written
    const bool last = end + 1 == text.size();
    const Json json =
        Json::parse(text.substr(journal.bytes, end - journal.bytes), nullptr, false);
    ++line;
    JournalEvent event;
    const bool read = json.is_object() &&
                      (line == 1 ? ReadHead(json, &journal.head) : ReadEvent(json, &event));
    if (!read && last && line > 1) break;
    if (!read) return Damaged(line, line == 1 ? "is no head" : "is no event");
    if (line > 1) journal.events.push_back(std::move(event));
    journal.bytes = end + 1;
  }
  return journal;
}

void Enter(const JournalEvent& event, ProblemState* state) {
  for (CandidateState& candidate : state->candidates) {
    if (candidate.variant != event.variant || candidate.fingerprint != event.fingerprint) continue;
    if (event.failure) {
      candidate.failure = event.failure;
    } else if (event.round < 0) {
      candidate.checked = true;
    } else {
      const auto round = static_cast<size_t>(event.round);
      if (candidate.rounds.size() <= round) candidate.rounds.resize(round + 1);
      candidate.rounds[round] = event.ns;
    }
  }
}

void Replay(const std::vector<JournalEvent>& events, ProblemState* state) {
  for (const JournalEvent& event : events) {
    if (event.problem == state->problem) Enter(event, state);
  }
}

}  // namespace kbundle::builder
