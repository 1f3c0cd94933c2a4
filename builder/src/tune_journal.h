// The journal's file: opened once, appended to, gone when the records are written.
#ifndef KBUNDLE_BUILDER_TUNE_JOURNAL_H_
#define KBUNDLE_BUILDER_TUNE_JOURNAL_H_

#include <memory>
#include <string>
#include <vector>

#include "tuning_journal.h"

namespace kbundle::builder {

// Owns the descriptor and a lock on the file: two tunes never write one journal. One thread.
class JournalFile {
 public:
  // Without `resume` whatever is there is replaced. With it the events that are there are taken and
  // the line that a kill cut short is cut off; kFailedPrecondition: the journal is of another
  // device, target or protocol. kUnavailable: another process holds it.
  static Result<std::unique_ptr<JournalFile>> Open(const std::string& path, const JournalHead& head,
                                                   bool resume);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  const std::vector<JournalEvent>& events() const { return events_; }  // those found
  const std::string& path() const { return path_; }
  // One write: a kill leaves the line or not, or cut short at the end of the file.
  Status Append(const JournalEvent& event);
  void Remove();  // the records hold it all

 private:
  JournalFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  Status Take(const JournalHead& head);
  Status Write(const std::string& text);

  const std::string path_;
  const int fd_;
  std::vector<JournalEvent> events_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_JOURNAL_H_
