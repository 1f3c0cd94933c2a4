#include "tune_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "files.h"

namespace kbundle::builder {

Result<std::unique_ptr<JournalFile>> JournalFile::Open(const std::string& path,
                                                       const JournalHead& head, bool resume) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Unavailable(fmt::format("opening the journal {}: {}; --out names another folder", path,
                                   std::strerror(errno)));
  }
  std::unique_ptr<JournalFile> file(new JournalFile(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return Unavailable(fmt::format("the journal {} is in use by another tune; wait for it", path));
  }
  if (resume) KB_RETURN_IF_ERROR(file->Take(head));
  if (!resume && ftruncate(fd, 0) != 0) {
    return Unavailable(fmt::format("emptying the journal {}: {}", path, std::strerror(errno)));
  }
  if (lseek(fd, 0, SEEK_END) == 0) KB_RETURN_IF_ERROR(file->Write(FormatHead(head)));
  return file;
}

JournalFile::~JournalFile() { close(fd_); }

Status JournalFile::Take(const JournalHead& head) {
  KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_));
  if (text.find('\n') == std::string::npos) {  // killed while it wrote the head, or new
    return ftruncate(fd_, 0) == 0 ? Status() : Unavailable("emptying the journal " + path_);
  }
  auto journal = ParseJournal(text);
  if (!journal.ok()) {
    return std::move(journal).status().Annotate(path_ + "; delete it to tune afresh");
  }
  if (!(journal->head == head)) {
    return FailedPrecondition(fmt::format(
        "the journal {} is of {} for {}, protocol {}; this is {} for {}, protocol {}: go on there, "
        "or tune afresh without --resume",
        path_, journal->head.device, journal->head.target, journal->head.protocol, head.device,
        head.target, head.protocol));
  }
  events_ = std::move(journal->events);
  if (ftruncate(fd_, static_cast<off_t>(journal->bytes)) != 0) {
    return Unavailable("cutting the unfinished line off the journal " + path_);
  }
  return Status();
}

Status JournalFile::Write(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return ResourceExhausted(
          fmt::format("writing the journal {}: {}", path_, std::strerror(errno)));
    }
    at += static_cast<size_t>(n);
  }
  return Status();
}

Status JournalFile::Append(const JournalEvent& event) { return Write(FormatEvent(event)); }

void JournalFile::Remove() { unlink(path_.c_str()); }

}  // namespace kbundle::builder
