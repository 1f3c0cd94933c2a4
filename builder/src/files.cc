#include "files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace kbundle::builder {
namespace {

Status SystemError(std::string_view doing, const std::string& path, int error) {
  const std::string text = fmt::format("{} {}: {}", doing, path, std::strerror(error));
  switch (error) {
    case ENOENT:
      return NotFound(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return PermissionDenied(text + "; check the folder's owner and mode");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ResourceExhausted(text + "; free some space or write elsewhere");
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return FailedPrecondition(text + "; choose another path");
    default:
      return Unavailable(text);
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // A full disk may show only here (NFS, quota).
  int Close() {
    const int fd = fd_;
    fd_ = -1;
    return close(fd);
  }

 private:
  int fd_;
};

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return SystemError("writing", path, n == 0 ? ENOSPC : errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return Status();
}

Status WriteNew(const std::string& path, std::string_view bytes, Durability durability) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return SystemError("creating", path, errno);
  KB_RETURN_IF_ERROR(WriteAll(file.get(), bytes, path));
  if (durability == Durability::kDisk && fsync(file.get()) != 0) {
    return SystemError("flushing", path, errno);
  }
  if (file.Close() != 0) return SystemError("closing", path, errno);
  return Status();
}

void SyncFolderOf(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  Descriptor fd(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Not every file system can flush a folder; the file itself is on the disk either way.
  if (fd.get() >= 0) (void)fsync(fd.get());
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, uint64_t limit_bytes) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return SystemError("opening", path, errno);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError("reading", path, errno);
  if (S_ISDIR(info.st_mode)) return SystemError("reading", path, EISDIR);
  if (static_cast<uint64_t>(info.st_size) > limit_bytes) {
    return ResourceExhausted(
        fmt::format("reading {}: {} bytes, at most {} allowed", path, info.st_size, limit_bytes));
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("reading", path, errno);
    if (n == 0) break;  // cut while we read: the caller's own checks decide
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error && !std::filesystem::is_directory(path)) {
    return SystemError("making folder", path, error.value());
  }
  return Status();
}

std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.tmp-{}-{}", path, getpid(), counter.fetch_add(1));
}

Status PublishFile(const std::string& path, std::string_view bytes, Durability durability) {
  const std::string temporary = TemporaryName(path);
  Status status = WriteNew(temporary, bytes, durability);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError("renaming a finished file to", path, errno);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  if (durability == Durability::kDisk) SyncFolderOf(path);
  return Status();
}

Result<TemporaryFolder> TemporaryFolder::Make() {
  const char* base = getenv("TMPDIR");
  std::string path =
      std::string(base != nullptr && base[0] == '/' ? base : "/tmp") + "/kbundle-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    const Status refused = SystemError("making a folder like", path, errno);
    return Status(refused.code(), refused.message() + "; set TMPDIR to a folder with room");
  }
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
  other.path_.clear();
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace kbundle::builder
