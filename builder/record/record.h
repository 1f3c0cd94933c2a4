// Records: what tuning found out about one problem on one device, one JSON line each, committed
// next to the manifest as tuning/<device>.jsonl and reviewed like code.
//
//   {"op": "norm.rmsnorm", "problem": {"operands": {"x": "bf16[16384,8192]"}, "attributes": {}},
//    "target": "sm_90a", "device": {"name": "NVIDIA H200", "driver": "580.95"},
//    "state": {"sm_mhz": [1980, 1980], "temperature_c": [38, 41], "power_state": ["P0"]},
//    "protocol": 1,
//    "winner": ID, "default": ID, "verdict": "faster", "reason": "12.3 % faster than ...",
//    "candidates": [{"variant": ID, "fingerprint": "0a1b..", "us": [q25, median, q75],
//                    "versus_default": [ratio, band], "samples": 60, "dropped": false,
//                    "workspace": 65536},
//                   {"variant": ID, "fingerprint": "..", "failed":
//                    {"kind": "wrong", "detail": "..", "reproduce": "kbundle tune .."}}]}
//
// "earlier": true marks candidates that were not measured again when winner and default were, for
// other code (see tune/revalidate.h). "workspace" is what the candidate asks for, in bytes; left
// out where that is none, and in records of before it was kept. "state" is how the device was while
// the samples were taken: the least and the greatest of a number, the texts seen. Candidates stand
// in manifest order, keys as above, lines sorted; numbers have five digits. Equal records are equal
// bytes.
#ifndef KBUNDLE_BUILDER_RECORD_RECORD_H_
#define KBUNDLE_BUILDER_RECORD_RECORD_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "builder/record/log.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// Five digits: what a measurement is worth, and what a diff can be read in.
double Rounded(double number);

struct RecordCandidate {
  std::string variant, fingerprint;
  // Microseconds; absent where `failed`.
  std::optional<Quartiles> us;
  double ratio = 1, band = 0;  // against the default, paired by round; of the default: 1 and 0
  int samples = 0;
  bool dropped = false;
  int64_t workspace = 0;  // bytes
  std::optional<CandidateFailure> failed;
  bool earlier = false;  // of code and times before `kbundle tune --revalidate`
};

struct TuningRecord {
  std::string op;
  nlohmann::json problem;  // {"operands": {..}, "attributes": {..}}, as ProblemToJson writes it
  std::string target;
  nlohmann::json device;  // {"name": "NVIDIA H200", ...}: texts and numbers
  nlohmann::json state = nlohmann::json::object();
  int protocol = 0;
  std::string winner, base;  // variant ids; base is written as "default"
  std::string verdict, reason;
  std::vector<RecordCandidate> candidates;

  std::string device_name() const { return device.value("name", ""); }
  const RecordCandidate* Find(std::string_view variant) const;  // null: not among the candidates
  std::string Line() const;                                     // without "\n"
  // Equal for records of one problem on one target and device model; what files are sorted by.
  std::string Key() const;
};

// kInvalidArgument: "where: what, and what to do". Checks everything that needs no bundle: a line
// cut short, a merge conflict's marker, unknown or missing keys, times that are not above zero and
// in order, a winner that is no measured candidate.
Result<TuningRecord> ParseRecord(std::string_view line, const std::string& where);
// The lines of a file, errors as "file:line: ...". `device`, when not empty: records of another
// model are refused. Two lines of one key are refused with the advice to merge.
Result<std::vector<TuningRecord>> ParseRecords(std::string_view text, const std::string& path,
                                               const std::string& device = "");
// kNotFound: no such file.
Result<std::vector<TuningRecord>> ReadRecords(const std::string& path,
                                              const std::string& device = "");
// Sorted lines.
std::string RecordsText(std::vector<TuningRecord> records);

// "NVIDIA H200" -> "nvidia-h200": the name of the file, without ".jsonl".
std::string DeviceSlug(std::string_view device_name);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_RECORD_RECORD_H_
