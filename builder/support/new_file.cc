// Between making a neighbour and locking it a sweeper may take it for a dead writer's: its link
// count then says so, and another is made. Data may reach a disk or a server as late as at close,
// so a copy of the descriptor is closed to hear of it while the lock stays.
#include "builder/support/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".tmp-";
constexpr size_t kDigits = 16;  // of random bytes, in hexadecimal

std::string RandomDigits() {
  uint64_t random = 0;
  // Without an entropy source O_EXCL still keeps writers apart; they try again more often.
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    random = static_cast<uint64_t>(now.tv_nsec) << 32 ^ static_cast<uint64_t>(getpid());
  }
  return fmt::format("{:016x}", random);
}

bool IsNeighbour(const std::string& name, const std::string& of) {
  if (name.size() != of.size() + kMark.size() + kDigits || !name.starts_with(of)) return false;
  if (name.compare(of.size(), kMark.size(), kMark) != 0) return false;
  return name.find_first_not_of("0123456789abcdef", of.size() + kMark.size()) == std::string::npos;
}

// Removes neighbours of `path` that no living process holds.
void Sweep(const std::string& path) {
  const fs::path place(path);
  const std::string name = place.filename().string();
  const fs::path folder = place.parent_path().empty() ? fs::path(".") : place.parent_path();
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!IsNeighbour(it->path().filename().string(), name)) continue;
    const int fd = open(it->path().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(it->path().c_str());
    close(fd);
  }
}

// A new file that this process holds locked. Between making and locking a sweeper may take it.
Result<std::pair<std::string, int>> MakeNeighbour(const std::string& path) {
  for (int tries = 0; tries < 100; ++tries) {
    std::string name = path + std::string(kMark) + RandomDigits();
    const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return SystemError("creating", name, errno);
    // A file system that knows no locks: nothing is swept there either.
    (void)flock(fd, LOCK_EX);
    struct stat info;
    if (fstat(fd, &info) == 0 && info.st_nlink > 0) return std::pair(std::move(name), fd);
    close(fd);
  }
  return Unavailable(fmt::format("creating a file beside {}: each of 100 names was taken", path));
}

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return SystemError("writing", path, n == 0 ? ENOSPC : errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return Status();
}

void SyncFolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  // Not every file system can flush a folder; the file itself is on the disk either way.
  (void)fsync(fd);
  close(fd);
}

}  // namespace

NewFile::NewFile(std::string path, std::string neighbour, int fd, Durability durability)
    : path_(std::move(path)), neighbour_(std::move(neighbour)), fd_(fd), durability_(durability) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      neighbour_(std::exchange(other.neighbour_, "")),
      fd_(std::exchange(other.fd_, -1)),
      durability_(other.durability_) {}

NewFile::~NewFile() {
  if (!neighbour_.empty()) unlink(neighbour_.c_str());
  if (fd_ >= 0) close(fd_);
}

Result<NewFile> NewFile::Write(const std::string& path, std::string_view bytes,
                               Durability durability) {
  KB_RETURN_IF_ERROR(CheckReplaceable(path));
  Sweep(path);
  KB_ASSIGN_OR_RETURN(auto made, MakeNeighbour(path));
  NewFile file(path, std::move(made.first), made.second, durability);
  KB_RETURN_IF_ERROR(file.Fill(bytes));
  return file;
}

Status NewFile::Fill(std::string_view bytes) {
  KB_RETURN_IF_ERROR(WriteAll(fd_, bytes, path_));
  // A full disk may show only when the data get there (NFS, quota): at a close or a flush. The
  // lock stays with the descriptor that is left.
  const int copy = dup(fd_);
  if (copy >= 0 && close(copy) != 0) return SystemError("closing", path_, errno);
  if (durability_ == Durability::kDisk && fsync(fd_) != 0) {
    return SystemError("flushing", path_, errno);
  }
  return Status();
}

Status NewFile::Publish() {
  if (rename(neighbour_.c_str(), path_.c_str()) != 0) {
    return SystemError("renaming a finished file to", path_, errno);
  }
  neighbour_.clear();
  if (durability_ == Durability::kDisk) SyncFolderOf(path_);
  close(std::exchange(fd_, -1));
  return Status();
}

}  // namespace kbundle::builder
