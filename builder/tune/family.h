// What a tune writes of one family: events into a journal, and at the end the records that follow
// from them.
#ifndef KBUNDLE_BUILDER_TUNE_FAMILY_H_
#define KBUNDLE_BUILDER_TUNE_FAMILY_H_

#include <memory>
#include <string>
#include <vector>

#include "builder/record/record.h"
#include "builder/tune/journal_file.h"

namespace kbundle::builder {

// One thread.
class FamilyTune {
 public:
  // Enters the start on a device with these facts, after what an earlier tune left in the journal.
  // folder: of journal and records; "": nothing is written. purpose: tunes of another ("") keep a
  // journal of their own.
  static Result<std::unique_ptr<FamilyTune>> Open(const std::string& folder,
                                                  const std::string& target,
                                                  const nlohmann::json& facts,
                                                  const std::string& purpose);

  // The journal first: what is not in it has not happened.
  Status Enter(const nlohmann::json& event);
  const TuningState& state() const { return state_; }
  const ProblemLog& LogOf(int number) const {
    return state_.problems()[static_cast<size_t>(number)].log;
  }

  // These, made from the state, take the place of what was there of the same problems and device.
  // The journal is gone then, unless it holds measurements of a problem that is not done. The path
  // of the records; "" where nothing was written.
  Result<std::string> Publish(std::vector<TuningRecord> records);

 private:
  FamilyTune() = default;

  std::string records_;  // a path
  std::unique_ptr<JournalFile> journal_;
  TuningState state_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_FAMILY_H_
