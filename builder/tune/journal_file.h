// The journal's file: opened once, appended to and never emptied; gone when the records hold what
// it says.
#ifndef KBUNDLE_BUILDER_TUNE_JOURNAL_FILE_H_
#define KBUNDLE_BUILDER_TUNE_JOURNAL_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "builder/record/journal.h"

namespace kbundle::builder {

// Owns the descriptor and a lock on the file: two tunes never write one journal. One thread.
class JournalFile {
 public:
  // Makes it where it is not. kUnavailable: another process holds it.
  static Result<std::unique_ptr<JournalFile>> Open(const std::string& path);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  // What it says so far; the line that a kill cut short is cut off. An error says how to set it
  // aside.
  Result<TuningState> Take(const std::string& target, const std::string& device);
  // One write: a kill leaves the line or not, or cut short at the end of the file.
  Status Append(const std::string& line);
  void Remove();  // the records hold it all

 private:
  JournalFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_JOURNAL_FILE_H_
