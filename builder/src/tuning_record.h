// Tuning records: what was measured for one problem on one device. Text, one JSON object a line,
// keys and lines sorted, committed and reviewed like code.
//
//   {"candidates": [{"fingerprint": "..", "samples": 40, "us": [10.1, 10.2, 10.4], "variant": ".."},
//                   {"failed": {"command": "..", "kind": "wrong", "message": ".."}, ..}],
//    "default": ID, "device": {"driver": "..", "name": "NVIDIA H200", ..}, "gain": 1.07,
//    "problem": {"attributes": {..}, "op": "..", "operands": {..}}, "protocol": 1, "reason": "..",
//    "target": "sm_90a", "verdict": "faster", "winner": ID}
#ifndef KBUNDLE_BUILDER_TUNING_RECORD_H_
#define KBUNDLE_BUILDER_TUNING_RECORD_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/status.h"
#include "tuning_state.h"

namespace kbundle::builder {

struct CandidateRecord {
  std::string variant, fingerprint;
  std::optional<TuningFailure> failure;
  Quartiles us;        // microseconds a launch, over the rounds' figures
  int samples = 0;
  bool dropped = false;  // it left the race before the last round
  bool operator==(const CandidateRecord&) const = default;
};

struct TuningRecord {
  nlohmann::json problem;  // {"op", "operands", "attributes"}
  std::string target;
  nlohmann::json device;   // facts and state; "name" is there
  int protocol = 0;
  std::string winner;      // "" when the verdict is "none"
  std::string default_variant;
  std::string verdict, reason;
  double gain = 1;
  std::vector<CandidateRecord> candidates;  // in manifest order

  std::string op() const { return problem.value("op", ""); }
  std::string device_name() const { return device.value("name", ""); }
  // What tells records apart: target, device and problem.
  std::string key() const;
  bool operator==(const TuningRecord&) const = default;
};

// From what was measured; `device` may hold more than facts (the state after the rounds).
TuningRecord Conclude(const ProblemState& state, const std::string& target,
                      const nlohmann::json& device);

// One line, without the line feed.
std::string FormatRecord(const TuningRecord& record);
// kDataLoss: cut short, a merge conflict's marker, no JSON; kInvalidArgument: negative or other
// impossible times, unknown keys, a winner that is no candidate.
Result<TuningRecord> ParseRecord(std::string_view line);

// Errors name file and line. A file that is not there is kNotFound.
Result<std::vector<TuningRecord>> ReadRecords(const std::string& path);
// Sorted, written whole by a rename.
Status WriteRecords(const std::string& path, std::vector<TuningRecord> records);

// One record a key: the one with more evidence (a newer protocol, more samples, then the later
// text). Associative, commutative, idempotent. Sorted by key.
std::vector<TuningRecord> MergeRecords(std::vector<TuningRecord> a, std::vector<TuningRecord> b);

// "nvidia_h200" of "NVIDIA H200": the name of a device's file.
std::string DeviceSlug(std::string_view device);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNING_RECORD_H_
