// Records are edited, merged and cut by people and version control, and decide what users run:
// every key is wanted by name and kind, every unknown one refused, and the parts must agree (a
// winner with times, a verdict that fits it). The first error is told with its line and what to do.
#include "builder/record/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "builder/record/protocol.h"
#include "builder/support/files.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

Ordered CandidateJson(const RecordCandidate& candidate) {
  Ordered json{{"variant", candidate.variant}, {"fingerprint", candidate.fingerprint}};
  if (candidate.earlier) json["earlier"] = true;
  if (candidate.failed) {
    json["failed"] = Ordered{{"kind", candidate.failed->kind},
                             {"detail", candidate.failed->detail},
                             {"reproduce", candidate.failed->reproduce}};
    return json;
  }
  const Quartiles& us = *candidate.us;
  json["us"] = {Rounded(us.low), Rounded(us.median), Rounded(us.high)};
  json["versus_default"] = {Rounded(candidate.ratio), Rounded(candidate.band)};
  json["samples"] = candidate.samples;
  json["dropped"] = candidate.dropped;
  if (candidate.workspace > 0) json["workspace"] = candidate.workspace;
  return json;
}

// Reads one object strictly: each access says what is wanted, the end says what was not.
class Reader {
 public:
  Reader(const Json& json, std::string what) : json_(json), what_(std::move(what)) {}

  const Json* Take(const char* key, bool (Json::*is)() const noexcept, const char* wanted) {
    known_.push_back(key);
    const auto found = json_.find(key);
    if (found != json_.end() && ((*found).*is)()) return &*found;
    Fail(found == json_.end() ? fmt::format("no \"{}\"; wanted: {}", key, wanted)
                              : fmt::format("\"{}\" is {}, not {}", key, found->dump(), wanted));
    return nullptr;
  }
  void Text(const char* key, std::string* out) {
    if (const Json* json = Take(key, &Json::is_string, "a text")) *out = json->get<std::string>();
  }
  template <typename Number>
  void Count(const char* key, int least, Number* out) {
    const Json* json = Take(key, &Json::is_number_integer, "a whole number");
    if (json == nullptr) return;
    const auto number = json->get<int64_t>();
    constexpr int64_t kMost = sizeof(Number) > sizeof(int) ? int64_t{1} << 50 : 1'000'000'000;
    if (number < least || number > kMost) {
      return Fail(fmt::format("\"{}\" is {}, at least {} is wanted", key, number, least));
    }
    *out = static_cast<Number>(number);
  }
  // `count` finite numbers not below `least`.
  std::vector<double> Numbers(const char* key, size_t count, double least) {
    std::vector<double> numbers;
    const Json* json = Take(key, &Json::is_array, "a list of numbers");
    if (json == nullptr) return std::vector<double>(count, 0);
    for (const Json& item : *json) {
      numbers.push_back(item.is_number() ? item.get<double>() : std::nan(""));
      if (std::isfinite(numbers.back()) && numbers.back() >= least) continue;
      Fail(
          fmt::format("\"{}\" holds {}: wanted are finite numbers, not negative; this is no "
                      "measurement, tune again",
                      key, item.dump()));
    }
    if (numbers.size() != count) {
      Fail(fmt::format("\"{}\" has {} numbers, {} are wanted", key, numbers.size(), count));
    }
    numbers.resize(count);
    return numbers;
  }
  bool Has(const char* key) const { return json_.contains(key); }
  void Fail(const std::string& error) {
    if (error_.empty()) error_ = what_ + error;
  }
  Status Finish(const std::string& where) {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      Fail(fmt::format("unknown key \"{}\"{}", key, DidYouMean(key, known_)));
    }
    return error_.empty() ? Status() : InvalidArgument(where + ": " + error_);
  }

 private:
  const Json& json_;
  std::string what_, error_;
  std::vector<std::string> known_;
};

Status ReadCandidate(const Json& json, const std::string& where, RecordCandidate* candidate) {
  if (!json.is_object()) return InvalidArgument(where + ": a candidate is no object");
  Reader reader(json, "a candidate: ");
  reader.Text("variant", &candidate->variant);
  reader.Text("fingerprint", &candidate->fingerprint);
  if (reader.Has("earlier")) {
    const Json* earlier = reader.Take("earlier", &Json::is_boolean, "true or false");
    candidate->earlier = earlier != nullptr && earlier->get<bool>();
  }
  if (reader.Has("failed")) {
    const Json* failed = reader.Take("failed", &Json::is_object, "an object");
    KB_RETURN_IF_ERROR(reader.Finish(where));
    Reader inner(*failed, "a candidate's failure: ");
    candidate->failed.emplace();
    inner.Text("kind", &candidate->failed->kind);
    inner.Text("detail", &candidate->failed->detail);
    inner.Text("reproduce", &candidate->failed->reproduce);
    return inner.Finish(where);
  }
  const std::vector<double> us = reader.Numbers("us", 3, 0);
  const std::vector<double> versus = reader.Numbers("versus_default", 2, 0);
  reader.Count("samples", 1, &candidate->samples);
  if (const Json* dropped = reader.Take("dropped", &Json::is_boolean, "true or false")) {
    candidate->dropped = dropped->get<bool>();
  }
  if (reader.Has("workspace")) reader.Count("workspace", 1, &candidate->workspace);
  if (!(us[0] > 0 && us[0] <= us[1] && us[1] <= us[2] && versus[0] > 0)) {
    reader.Fail("times are above zero and grow: quarter, median, three quarters; tune again");
  }
  candidate->us = Quartiles{us[0], us[1], us[2]};
  candidate->ratio = versus[0];
  candidate->band = versus[1];
  return reader.Finish(where);
}

Status CheckWhole(const TuningRecord& record, const std::string& where) {
  const auto wrong = [&](const std::string& what) { return InvalidArgument(where + ": " + what); };
  if (record.protocol > kProtocol) {
    return wrong(fmt::format("protocol {}, this kbundle knows up to {}: upgrade it",
                             record.protocol, kProtocol));
  }
  if (record.device_name().empty()) return wrong("\"device\" has no \"name\"; tune again");
  std::set<std::string> ids;
  for (const RecordCandidate& candidate : record.candidates) {
    if (!ids.insert(candidate.variant).second) {
      return wrong("candidate " + candidate.variant + " is there twice; keep one of them");
    }
  }
  for (const std::string* id : {&record.winner, &record.base}) {
    const RecordCandidate* candidate = record.Find(*id);
    if (candidate != nullptr && !candidate->failed) continue;
    const std::vector<std::string> names(ids.begin(), ids.end());
    return wrong(fmt::format("\"{}\" is no candidate with times{}; tune again", *id,
                             candidate == nullptr ? DidYouMean(*id, names) : ""));
  }
  const std::set<std::string> verdicts = {"default", "faster", "noise", "only"};
  if (!verdicts.contains(record.verdict)) {
    return wrong(
        fmt::format("verdict \"{}\": default, faster, noise or only is wanted", record.verdict));
  }
  if ((record.verdict == "faster") == (record.winner == record.base)) {
    return wrong("verdict \"" + record.verdict + "\" does not fit winner and default; tune again");
  }
  if (record.verdict == "faster" && record.Find(record.winner)->ratio >= 1) {
    return wrong("the winner is not faster than the default; tune again");
  }
  return Status();
}

}  // namespace

double Rounded(double number) {
  return std::strtod(fmt::format("{:.5g}", number).c_str(), nullptr);
}

const RecordCandidate* TuningRecord::Find(std::string_view variant) const {
  for (const RecordCandidate& candidate : candidates) {
    if (candidate.variant == variant) return &candidate;
  }
  return nullptr;
}

std::string TuningRecord::Line() const {
  Ordered json{{"op", op},
               {"problem", Ordered{{"operands", Ordered(problem["operands"])},
                                   {"attributes", Ordered(problem["attributes"])}}},
               {"target", target}};
  Ordered facts = Ordered::object();
  for (const auto& [key, value] : device.items()) {
    facts[key] = value.is_number_float() ? Ordered(Rounded(value.get<double>())) : Ordered(value);
  }
  json["device"] = std::move(facts);
  json["state"] = Ordered(state);
  json["protocol"] = protocol;
  json["winner"] = winner;
  json["default"] = base;
  json["verdict"] = verdict;
  json["reason"] = reason;
  json["candidates"] = Ordered::array();
  for (const RecordCandidate& candidate : candidates) {
    json["candidates"].push_back(CandidateJson(candidate));
  }
  return json.dump();
}

std::string TuningRecord::Key() const {
  return fmt::format("{} {} {} {}", op, problem.dump(), target, device_name());
}

Result<TuningRecord> ParseRecord(std::string_view line, const std::string& where) {
  for (const char* marker : {"<<<<<<<", "=======", ">>>>>>>", "|||||||"}) {
    if (!line.starts_with(marker)) continue;
    return InvalidArgument(
        where +
        ": a merge conflict's marker; delete the markers, and of two lines of one "
        "problem one");
  }
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return InvalidArgument(where +
                           ": no JSON object, perhaps a line that was cut short; restore it from "
                           "version control or delete it and tune again");
  }
  TuningRecord record;
  Reader reader(json, "");
  reader.Text("op", &record.op);
  const Json* problem = reader.Take("problem", &Json::is_object, "an object");
  reader.Text("target", &record.target);
  const Json* device = reader.Take("device", &Json::is_object, "an object");
  const Json* state = reader.Take("state", &Json::is_object, "an object");
  reader.Count("protocol", 1, &record.protocol);
  reader.Text("winner", &record.winner);
  reader.Text("default", &record.base);
  reader.Text("verdict", &record.verdict);
  reader.Text("reason", &record.reason);
  const Json* candidates = reader.Take("candidates", &Json::is_array, "a list");
  KB_RETURN_IF_ERROR(reader.Finish(where));
  Reader parts(*problem, "the problem: ");
  parts.Take("operands", &Json::is_object, "an object");
  parts.Take("attributes", &Json::is_object, "an object");
  KB_RETURN_IF_ERROR(parts.Finish(where));
  record.problem = *problem;
  record.device = *device;
  record.state = *state;
  if (device->contains("name") && !(*device)["name"].is_string()) {
    return InvalidArgument(where + ": the device's \"name\" is no text; tune again");
  }
  for (const Json& candidate : *candidates) {
    KB_RETURN_IF_ERROR(ReadCandidate(candidate, where, &record.candidates.emplace_back()));
  }
  KB_RETURN_IF_ERROR(CheckWhole(record, where));
  return record;
}

Result<std::vector<TuningRecord>> ParseRecords(std::string_view text, const std::string& path,
                                               const std::string& device) {
  std::vector<TuningRecord> records;
  std::map<std::string, int> lines;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    KB_ASSIGN_OR_RETURN(TuningRecord record, ParseRecord(line, where));
    if (!device.empty() && record.device_name() != device) {
      return FailedPrecondition(
          fmt::format("{}: measured on {}, this is {}; times of one GPU model say nothing about "
                      "another: move the line to tuning/{}.jsonl",
                      where, record.device_name(), device, DeviceSlug(record.device_name())));
    }
    const auto [found, fresh] = lines.try_emplace(record.Key(), number);
    if (!fresh) {
      return InvalidArgument(fmt::format(
          "{}: the problem of line {} again; keep one of the two lines", where, found->second));
    }
    records.push_back(std::move(record));
  }
  return records;
}

Result<std::vector<TuningRecord>> ReadRecords(const std::string& path, const std::string& device) {
  KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseRecords(text, path, device);
}

std::string RecordsText(std::vector<TuningRecord> records) {
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.Key() < b.Key(); });
  std::string text;
  for (const TuningRecord& record : records) text += record.Line() + "\n";
  return text;
}

std::string DeviceSlug(std::string_view device_name) {
  std::string slug;
  for (char c : device_name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool capital = c >= 'A' && c <= 'Z';
    if (letter || capital) {
      slug += capital ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "device" : slug;
}

}  // namespace kbundle::builder
