// The lock is taken before anything is read, so nobody appends between reading and cutting off the
// last line. Appending is the file's own mode: a write never lands elsewhere.
#include "builder/tune/journal_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "builder/support/files.h"

namespace kbundle::builder {

Result<std::unique_ptr<JournalFile>> JournalFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Unavailable(fmt::format("opening the journal {}: {}; --out names another folder", path,
                                   std::strerror(errno)));
  }
  std::unique_ptr<JournalFile> file(new JournalFile(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return Unavailable(fmt::format("the journal {} is in use by another tune; wait for it", path));
  }
  return file;
}

JournalFile::~JournalFile() { close(fd_); }

Result<TuningState> JournalFile::Take(const std::string& target, const std::string& device) {
  KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_));
  auto journal = Replay(text, path_);
  if (!journal.ok()) {
    return std::move(journal).status().Annotate(
        "going on after an earlier tune; move its journal away to begin anew");
  }
  const TuningState& state = journal->state;
  const std::string name = state.started() ? state.device().value("name", "") : device;
  if (state.started() && (state.target() != target || name != device)) {
    return FailedPrecondition(
        fmt::format("the journal {} is of {} on {}, this is {} on {}; go on there, or move it away",
                    path_, state.target(), name, target, device));
  }
  if (ftruncate(fd_, static_cast<off_t>(journal->good_bytes)) != 0) {
    return Unavailable("cutting the unfinished line off the journal " + path_);
  }
  return std::move(journal->state);
}

Status JournalFile::Append(const std::string& line) {
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = write(fd_, line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return ResourceExhausted(
          fmt::format("writing the journal {}: {}", path_, std::strerror(errno)));
    }
    at += static_cast<size_t>(n);
  }
  return Status();
}

void JournalFile::Remove() { unlink(path_.c_str()); }

}  // namespace kbundle::builder
