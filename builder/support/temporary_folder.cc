// It is the order of steps that makes a kill at any moment harmless: the lock is taken under
// another name and renamed, so a lock that stands unheld means a dead owner; and it is removed
// last, so a folder that is half gone is still known for one.
#include "builder/support/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "kbundle-";
constexpr time_t kMakingSeconds = 60;

Status Refused(const std::string& path, int error) {
  const std::string why = fmt::format("making a folder like {}: {}; set TMPDIR to a folder ", path,
                                      std::strerror(error));
  const bool denied = error == EROFS || error == EACCES || error == EPERM || error == ENOENT;
  return denied ? Unavailable(why + "that can be written") : ResourceExhausted(why + "with room");
}

// A folder without a lock is being made this moment, or its maker was killed then.
void RemoveIfUnfinished(const fs::path& folder, time_t changed) {
  if (time(nullptr) - changed < kMakingSeconds) return;
  unlink((folder / "new").c_str());
  rmdir(folder.c_str());  // only if it is empty: another program's stays
}

// The lock goes last: whoever is killed here leaves a folder that the next still knows for one.
void RemoveAll(const fs::path& folder) {
  std::error_code error, ignored;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != "lock") fs::remove_all(it->path(), ignored);
  }
  fs::remove_all(folder, ignored);
}

// Removes the folder of a process that is gone.
void RemoveIfAbandoned(const fs::path& folder) {
  struct stat info;
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    return;
  }
  const int lock = open((folder / "lock").c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (lock < 0) return RemoveIfUnfinished(folder, info.st_mtime);
  if (flock(lock, LOCK_EX | LOCK_NB) == 0) RemoveAll(folder);
  close(lock);
}

void SweepFolders(const std::string& base) {
  std::error_code error;
  for (fs::directory_iterator it(base, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(kPrefix)) RemoveIfAbandoned(it->path());
  }
}

}  // namespace

std::string TemporaryBase() {
  const char* set = getenv("TMPDIR");
  return set != nullptr && set[0] == '/' ? set : "/tmp";
}

class ProcessFolder {
 public:
  // The one of this process in `base`, made where there is none.
  static Result<std::shared_ptr<ProcessFolder>> Get(const std::string& base) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<ProcessFolder>> all;
    const std::lock_guard<std::mutex> lock(mutex);
    std::weak_ptr<ProcessFolder>& current = all[base];
    if (auto found = current.lock()) return found;
    KB_ASSIGN_OR_RETURN(std::shared_ptr<ProcessFolder> made, Make(base));
    current = made;
    return made;
  }

  ~ProcessFolder() {
    RemoveAll(path_);
    close(lock_);
  }
  ProcessFolder(const ProcessFolder&) = delete;
  ProcessFolder& operator=(const ProcessFolder&) = delete;

  Result<std::string> MakeNext() {
    std::string path = fmt::format("{}/{}", path_, next_.fetch_add(1));
    if (mkdir(path.c_str(), 0700) != 0) return Refused(path, errno);
    return path;
  }

 private:
  ProcessFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  static Result<std::shared_ptr<ProcessFolder>> Make(const std::string& base) {
    SweepFolders(base);
    std::string path = fmt::format("{}/{}XXXXXX", base, kPrefix);
    if (mkdtemp(path.data()) == nullptr) return Refused(path, errno);
    // Locked under another name first: a lock that stands there unheld means a dead owner.
    const std::string unlocked = path + "/new", locked = path + "/lock";
    const int fd = open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool made = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                      rename(unlocked.c_str(), locked.c_str()) == 0;
    if (made) return std::shared_ptr<ProcessFolder>(new ProcessFolder(std::move(path), fd));
    const int error = errno;
    if (fd >= 0) close(fd);
    std::error_code ignored;
    fs::remove_all(path, ignored);
    return Refused(path, error);
  }

  const std::string path_;
  const int lock_;
  std::atomic<uint64_t> next_{0};
};

Result<TemporaryFolder> TemporaryFolder::Make() { return MakeIn(TemporaryBase()); }

Result<TemporaryFolder> TemporaryFolder::MakeIn(const std::string& base) {
  KB_ASSIGN_OR_RETURN(std::shared_ptr<ProcessFolder> owner, ProcessFolder::Get(base));
  KB_ASSIGN_OR_RETURN(std::string path, owner->MakeNext());
  return TemporaryFolder(std::move(owner), std::move(path));
}

TemporaryFolder::TemporaryFolder(std::shared_ptr<ProcessFolder> owner, std::string path)
    : owner_(std::move(owner)), path_(std::move(path)) {}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : owner_(std::move(other.owner_)), path_(std::move(other.path_)) {
  other.path_.clear();
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace kbundle::builder
