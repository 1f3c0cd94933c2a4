// A record names its winner by id and by fingerprint, and is believed only while both hold for the
// code of today. Rows are sorted as the loader searches them (op, target, match), and the digest is
// of the records' own lines in that order, so it does not depend on how they lie in files.
#include "builder/pack/embed_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <tuple>

#include "builder/compile/fingerprint.h"
#include "builder/problem/json.h"
#include "builder/support/files.h"
#include "kbundle/tuned.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

class Embedder {
 public:
  Embedder(const Bundle& bundle, const Work& work, const std::vector<Object>& objects)
      : bundle_(bundle), fingerprints_(FingerprintsOf(work, objects)) {
    for (uint32_t i = 0; i < IndexOf(bundle).variants()->size(); ++i) {
      variants_[bundle.VariantId(i)] = i;
    }
    const auto* targets = IndexOf(bundle).targets();
    for (uint32_t i = 0; i < targets->size(); ++i) targets_[targets->Get(i)->name()->str()] = i;
  }

  Status Add(const std::string& path, const TuningRecord& record) {
    if (!targets_.contains(record.target)) return Status();
    const std::string where = fmt::format("{}: {} {}", path, record.op, record.problem.dump());
    std::string stale = WhyStale(record, fingerprints_);
    Result<Problem> problem = ProblemOf(record, bundle_);
    if (stale.empty() && !problem.ok()) stale = problem.status().message();
    if (!stale.empty()) {
      result_.left_out.push_back(fmt::format("{}: left out: {}", where, stale));
      return Status();
    }
    Row row{TunedMatch(bundle_, *problem), *problem, &record, {}};
    const auto* coordinates = OpOf(bundle_, problem->op).coordinates();
    for (uint32_t i = 0; coordinates != nullptr && i < coordinates->size(); ++i) {
      const auto coordinate = TunedCoordinate(bundle_, *problem, i);
      if (!coordinate) return Status();  // of zero elements: nothing is run
      row.coordinates.push_back(*coordinate);
    }
    devices_.insert(record.device_name());
    rows_.push_back(std::move(row));
    return Status();
  }

  EmbeddedRecords Finish() {
    std::sort(rows_.begin(), rows_.end(),
              [this](const Row& a, const Row& b) { return KeyOf(a) < KeyOf(b); });
    result_.devices.assign(devices_.begin(), devices_.end());
    Sha256 digest;
    for (const Row& row : rows_) {
      const std::string line = row.record->Line() + "\n";
      digest.Update(line.data(), line.size());
      AddRow(row);
    }
    result_.digest = digest.Finish();
    return std::move(result_);
  }

 private:
  struct Row {
    uint64_t match;
    Problem problem;
    const TuningRecord* record;
    std::vector<double> coordinates;
  };

  std::tuple<uint32_t, uint32_t, uint64_t, std::string> KeyOf(const Row& row) const {
    return {row.problem.op, targets_.at(row.record->target), row.match, row.record->Line()};
  }

  void AddRow(const Row& row) {
    const TuningRecord& record = *row.record;
    const auto device =
        static_cast<uint32_t>(std::distance(devices_.begin(), devices_.find(record.device_name())));
    const auto number = static_cast<uint32_t>(result_.rows.size());
    const auto place = static_cast<uint32_t>(result_.coordinates.size());
    result_.rows.emplace_back(row.match, row.problem.op, variants_.at(record.winner), number, place,
                              static_cast<uint16_t>(targets_.at(record.target)), 0, device);
    result_.coordinates.insert(result_.coordinates.end(), row.coordinates.begin(),
                               row.coordinates.end());
    fb::EvidenceT evidence;
    evidence.problem = row.problem.ToString();
    evidence.verdict = record.verdict;
    evidence.reason = record.reason;
    evidence.base = variants_.at(record.base);
    for (const RecordCandidate& candidate : record.candidates) {
      const auto found = variants_.find(candidate.variant);
      if (found == variants_.end()) continue;  // gone since: a loser, so the answer holds
      if (candidate.earlier) continue;         // times of other code
      const Quartiles us = candidate.us.value_or(Quartiles());
      uint64_t flags = 0;
      if (candidate.dropped) flags |= static_cast<uint64_t>(fb::TunedFlags::Dropped);
      if (candidate.failed) flags |= static_cast<uint64_t>(fb::TunedFlags::Failed);
      evidence.times.emplace_back(found->second, static_cast<uint32_t>(candidate.samples), us.low,
                                  us.median, us.high, candidate.ratio, candidate.band, flags);
    }
    result_.evidence.push_back(std::move(evidence));
  }

  const Bundle& bundle_;
  const std::map<std::string, std::string> fingerprints_;
  std::map<std::string, uint32_t> variants_, targets_;
  std::set<std::string> devices_;
  std::vector<Row> rows_;
  EmbeddedRecords result_;
};

}  // namespace

Result<std::vector<FoundRecords>> FindRecords(const std::vector<Family>& families) {
  std::set<std::string> paths;
  for (const Family& family : families) {
    const auto entries = ListFolder(family.directory + "/tuning");
    if (!entries.ok() && entries.status().code() == StatusCode::kNotFound) continue;
    if (!entries.ok()) return entries.status();
    for (const auto& entry : *entries) {
      if (entry.path().extension() == ".jsonl") paths.insert(entry.path().string());
    }
  }
  std::vector<FoundRecords> found;
  std::map<std::string, std::string> places;  // of records, by key
  for (const std::string& path : paths) {
    KB_ASSIGN_OR_RETURN(std::vector<TuningRecord> records, ReadRecords(path));
    for (const TuningRecord& record : records) {
      const auto [place, fresh] = places.try_emplace(record.Key(), path);
      if (fresh) continue;
      return InvalidArgument(fmt::format(
          "{}: {} {} on {} is recorded in {} too; delete one of the two records, or the file that "
          "is a copy",
          path, record.op, record.problem.dump(), record.device_name(), place->second));
    }
    found.push_back({path, std::move(records)});
  }
  return found;
}

std::map<std::string, std::string> FingerprintsOf(const Work& work,
                                                  const std::vector<Object>& objects) {
  std::map<std::string, std::string> fingerprints;
  for (const VariantUse& use : work.variants) {
    const Op& op = *work.ops[use.op].op;
    const Template& variant = op.templates[use.template_index];
    fingerprints[VariantLabel(op, variant, variant.points[use.point], work.targets[use.target])] =
        Fingerprint(work, use, objects);
  }
  return fingerprints;
}

std::string WhyStale(const TuningRecord& record,
                     const std::map<std::string, std::string>& fingerprints) {
  for (const std::string* id : {&record.winner, &record.base}) {
    const char* role = id == &record.winner ? "winner" : "default";
    const auto found = fingerprints.find(*id);
    if (found == fingerprints.end()) return fmt::format("its {} {} is gone", role, *id);
    if (found->second != record.Find(*id)->fingerprint) {
      return fmt::format("its {} {} has other code by now (fingerprint {}, was {}); tune again",
                         role, *id, found->second, record.Find(*id)->fingerprint);
    }
  }
  return "";
}

Result<Problem> ProblemOf(const TuningRecord& record, const Bundle& bundle) {
  nlohmann::json json = record.problem;
  json["op"] = record.op;
  return ProblemFromJson(bundle, json);
}

Result<EmbeddedRecords> EmbedRecords(const std::vector<FoundRecords>& found, const Bundle& bundle,
                                     const Work& work, const std::vector<Object>& objects) {
  Embedder embedder(bundle, work, objects);
  for (const FoundRecords& file : found) {
    for (const TuningRecord& record : file.records) {
      KB_RETURN_IF_ERROR(embedder.Add(file.path, record));
    }
  }
  return embedder.Finish();
}

}  // namespace kbundle::builder
