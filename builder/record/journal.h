// The journal of a tune: events as JSON lines, appended and flushed before the tune goes on.
// Replaying it gives everything that was measured; concluding gives the records. Pure: the file is
// the caller's.
//
//   {"event": "start", "protocol": 1, "seed": 1, "target": "sm_90a", "device": {..}}
//   {"event": "problem", "number": 0, "problem": {"op": .., "operands": {..}, "attributes": {..}},
//    "candidates": [[ID, FINGERPRINT], ..],       all legal ones, in manifest order
//    "anew": true}                                forget what was measured of it before
//   {"event": "checked", "number": 0, "variant": ID}
//   {"event": "failed", "number": 0, "variant": ID, "round": -1, "kind": .., "detail": ..,
//    "reproduce": ..}
//   {"event": "samples", "number": 0, "variant": ID, "round": 3, "ns": [..], "state": {..}}
//   {"event": "done", "number": 0}
//   {"event": "published"}                       what is done by now stands among the records
//
// A kill can cut the last line only; that one is ignored (and must be cut off before appending, at
// ReplayedJournal::good_bytes). Anything else that is not as above is an error.
#ifndef KBUNDLE_BUILDER_RECORD_JOURNAL_H_
#define KBUNDLE_BUILDER_RECORD_JOURNAL_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "builder/record/log.h"
#include "builder/record/record.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Events; numbers are rounded here to what the line holds, so that a state which took the event and
// one which read it are the same.
nlohmann::json StartEvent(const std::string& target, const nlohmann::json& device, uint64_t seed);
// A problem that stands in the journal already keeps its number; with the same candidates the event
// changes nothing, with others (code or manifest changed), or `anew`, everything known about it is
// forgotten. Other problems stay as they are.
nlohmann::json ProblemEvent(int number, const nlohmann::json& problem,
                            const std::vector<std::pair<std::string, std::string>>& candidates,
                            bool anew);
nlohmann::json CheckedEvent(int number, const std::string& variant, int64_t workspace);
nlohmann::json FailedEvent(int number, const std::string& variant, int round,
                           const CandidateFailure& failure);
nlohmann::json SamplesEvent(int number, const std::string& variant, int round,
                            const std::vector<double>& ns, const nlohmann::json& state);
nlohmann::json DoneEvent(int number);
nlohmann::json PublishedEvent();
std::string EventLine(const nlohmann::json& event);  // with "\n"

struct JournalProblem {
  nlohmann::json problem;  // {"op", "operands", "attributes"}
  ProblemLog log;
  nlohmann::json device;                            // of the session that began it
  nlohmann::json state = nlohmann::json::object();  // as in a record
  bool done = false, published = false;
};

class TuningState {
 public:
  // kInvalidArgument: not an event, or one that does not fit what came before; nothing has changed.
  Status Apply(const nlohmann::json& event);

  // In order of first appearance: the events' "number".
  const std::vector<JournalProblem>& problems() const { return problems_; }
  // Where a problem stands, or would be added: problems().size().
  int NumberOf(const nlohmann::json& problem) const;
  // Something was measured of a problem that is not done.
  bool HasUnfinished() const;
  bool started() const { return started_; }
  const std::string& target() const { return target_; }
  const nlohmann::json& device() const { return device_; }  // of the last start
  uint64_t seed() const { return seed_; }

 private:
  Status ApplyStart(const nlohmann::json& event);
  Status ApplyProblem(const nlohmann::json& event);
  Status ApplyMeasurement(const std::string& kind, const nlohmann::json& event);

  bool started_ = false;
  std::string target_;
  nlohmann::json device_;
  uint64_t seed_ = 1;
  std::vector<JournalProblem> problems_;
};

struct ReplayedJournal {
  TuningState state;
  size_t good_bytes = 0;  // the text up to the end of its last whole line
};
// kInvalidArgument: "path:line: ...".
Result<ReplayedJournal> Replay(std::string_view text, const std::string& path);

// Records of the problems for which NextStep says kDone and that have a winner, but for those that
// are published already (nothing may go back behind a newer record), sorted. The same
// state gives the same records.
std::vector<TuningRecord> Conclude(const TuningState& state);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_RECORD_JOURNAL_H_
