// Order is what a kill cannot hurt: an event is in the journal before it counts, and records are on
// the disk before the journal goes. A kill in between leaves both, and the next tune finds the same
// records again.
#include "builder/tune/family.h"

#include <set>
#include <utility>

#include "builder/record/protocol.h"
#include "builder/support/files.h"

namespace kbundle::builder {

Result<std::unique_ptr<FamilyTune>> FamilyTune::Open(const std::string& folder,
                                                     const std::string& target,
                                                     const nlohmann::json& facts,
                                                     const std::string& purpose) {
  std::unique_ptr<FamilyTune> made(new FamilyTune());
  if (!folder.empty()) {
    KB_RETURN_IF_ERROR(MakeFolders(folder));
    const std::string device = facts.value("name", ""), stem = folder + "/" + DeviceSlug(device);
    made->records_ = stem + ".jsonl";
    // One a target: what was measured for another has no part in this tune.
    KB_ASSIGN_OR_RETURN(made->journal_,
                        JournalFile::Open(stem + "." + target + purpose + ".journal"));
    KB_ASSIGN_OR_RETURN(made->state_, made->journal_->Take(target, device));
  }
  KB_RETURN_IF_ERROR(made->Enter(StartEvent(target, facts, kDefaultSeed)));
  return made;
}

Status FamilyTune::Enter(const nlohmann::json& event) {
  if (journal_ != nullptr) {
    KB_RETURN_IF_ERROR(journal_->Append(EventLine(event)));
  }
  return state_.Apply(event);
}

Result<std::string> FamilyTune::Publish(std::vector<TuningRecord> records) {
  if (journal_ == nullptr) return std::string();
  auto before = ReadRecords(records_);
  if (!before.ok() && before.status().code() != StatusCode::kNotFound) return before.status();
  std::string written;
  std::set<std::string> keys;
  for (const TuningRecord& record : records) keys.insert(record.Key());
  for (TuningRecord& record : before.ok() ? *before : std::vector<TuningRecord>()) {
    if (!keys.contains(record.Key())) records.push_back(std::move(record));
  }
  if (!records.empty()) {
    KB_RETURN_IF_ERROR(PublishFile(records_, RecordsText(std::move(records)), Durability::kDisk));
    written = records_;
  }
  if (state_.HasUnfinished()) {
    KB_RETURN_IF_ERROR(Enter(PublishedEvent()));
  } else {
    journal_->Remove();
  }
  return written;
}

}  // namespace kbundle::builder
