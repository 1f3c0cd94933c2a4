// The journal of a tune in progress: every answer of the measuring child, appended as one line of
// JSON before the tuner goes on. Replaying it gives the state again.
#ifndef KBUNDLE_BUILDER_TUNING_JOURNAL_H_
#define KBUNDLE_BUILDER_TUNING_JOURNAL_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/status.h"
#include "tuning_state.h"

namespace kbundle::builder {

// The first line: what the rest is about. A journal of another device, target or protocol is not
// gone on with.
struct JournalHead {
  std::string target, device;
  int protocol = 0;
  bool operator==(const JournalHead&) const = default;
};

struct JournalEvent {
  std::string problem;  // as ProblemState has it
  std::string variant, fingerprint;
  int round = -1;  // -1: the check
  std::optional<TuningFailure> failure;
  std::vector<double> ns;   // of a round
  nlohmann::json state;     // clocks, ... after the round; null when unknown
};

std::string FormatHead(const JournalHead& head);    // with the line feed
std::string FormatEvent(const JournalEvent& event);  // with the line feed

struct Journal {
  JournalHead head;
  std::vector<JournalEvent> events;
  size_t bytes = 0;  // up to here it is whole: a last line that a kill cut short is not counted
};
// kDataLoss names the line that is damaged, unless it is the last.
Result<Journal> ParseJournal(std::string_view text);

// Enters the events about this problem into a state whose candidates are named. Events of candidates
// that are not there, or whose code has changed since, are passed over.
void Replay(const std::vector<JournalEvent>& events, ProblemState* state);
// The same for one event.
void Enter(const JournalEvent& event, ProblemState* state);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNING_JOURNAL_H_
