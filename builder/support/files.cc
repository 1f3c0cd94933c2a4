// Paths come from people: a pipe must not be waited for, a folder not be read, a device not be
// replaced. errno becomes the code that says what the user can do (free space, another path,
// rights).
#include "builder/support/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kbundle/file_descriptor.h"

namespace kbundle::builder {

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

Result<std::string> ReadFile(const std::string& path, uint64_t limit_bytes) {
  // A pipe that nobody writes to would be waited for at open().
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok()) return SystemError("opening", path, errno);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError("reading", path, errno);
  if (S_ISDIR(info.st_mode)) return SystemError("reading", path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(fmt::format(
        "reading {}: it is no file but a pipe, socket or device; write it to a file and name that",
        path));
  }
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

Result<std::vector<std::filesystem::directory_entry>> ListFolder(
    const std::filesystem::path& folder) {
  std::vector<std::filesystem::directory_entry> found;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    found.push_back(*at);
  }
  if (error) return SystemError("reading folder", folder.string(), error.value());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::filesystem::directory_entry> PeekIntoFolder(const std::filesystem::path& folder) {
  auto found = ListFolder(folder);
  return found.ok() ? *std::move(found) : std::vector<std::filesystem::directory_entry>();
}

Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error && !std::filesystem::is_directory(path)) {
    return SystemError("making folder", path, error.value());
  }
  return Status();
}

Status CheckReplaceable(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return Status();
  const char* what = S_ISDIR(info.st_mode)    ? "a folder"
                     : S_ISFIFO(info.st_mode) ? "a pipe"
                     : S_ISSOCK(info.st_mode) ? "a socket"
                                              : "a device";
  return FailedPrecondition(fmt::format(
      "writing {}: it is {}, and a file would take its place; name a file", path, what));
}

Status CheckOutput(const std::string& path, std::string_view begins, std::string_view kind) {
  KB_RETURN_IF_ERROR(CheckReplaceable(path));
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.ok() && errno == ENOENT) return Status();
  if (!file.ok() && errno != EACCES) return SystemError("writing", path, errno);
  std::string head(begins.size(), '\0');
  const ssize_t n = file.ok() ? read(file.get(), head.data(), head.size()) : -1;
  if (n == 0) return Status();
  if (n == static_cast<ssize_t>(begins.size()) && head == begins) return Status();
  return FailedPrecondition(fmt::format(
      "writing {}: there is a file that is no {}; name another, or replace it with --force", path,
      kind));
}

Status PublishFile(const std::string& path, std::string_view bytes, Durability durability) {
  KB_ASSIGN_OR_RETURN(NewFile file, NewFile::Write(path, bytes, durability));
  return file.Publish();
}

}  // namespace kbundle::builder
