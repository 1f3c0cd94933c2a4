// Files are read with pread into own memory, never mapped: one that is truncated meanwhile is an
// error value then, and no SIGBUS.
#include "loader/open/file_view.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace kbundle {
namespace {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

Status OpenError(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound("no such file: check the path, or build it with `kbundle build`");
    case EACCES:
    case EPERM:
      return PermissionDenied("this process may not read the file: check its mode");
    default:
      return Unavailable(ErrnoText(error));
  }
}

}  // namespace

Result<FileView> FileView::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer; it means nothing for a regular file.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  return fd < 0 ? OpenError(errno) : Of(fd);
}

Result<FileView> FileView::OfDescriptor(int fd) {
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own >= 0) return Of(own);
  if (errno != EBADF) return OpenError(errno);
  return InvalidArgument("no file is open under that number: give one that open() returned");
}

FileView FileView::OfBytes(Buffer bytes) {
  FileView view(-1, bytes.size());
  view.bytes_ = std::move(bytes);
  return view;
}

Result<FileView> FileView::Of(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return OpenError(error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument("it is not a regular file: give the path of a bundle file");
  }
  return FileView(fd, static_cast<uint64_t>(info.st_size));
}

FileView::~FileView() {
  if (fd_ >= 0) ::close(fd_);
}

Status FileView::Read(uint64_t offset, void* into, uint64_t size) const {
  if (fd_ < 0) {
    if (offset > bytes_.size() || size > bytes_.size() - offset) {
      return DataLoss(
          fmt::format("the bytes end at {} but {} are needed at {}", bytes_.size(), size, offset));
    }
    std::copy_n(bytes_.data() + offset, size, static_cast<uint8_t*>(into));
    return Status();
  }
  auto* bytes = static_cast<char*>(into);
  uint64_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(fd_, bytes + done, std::min<uint64_t>(size - done, 1u << 30),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Unavailable(fmt::format("reading {} bytes at {}: {}", size, offset, ErrnoText(errno)));
    }
    if (got == 0) {
      return DataLoss(fmt::format(
          "the file ends at {} but {} bytes are needed at {}: it was truncated while open; replace "
          "bundles by rename, never in place",
          offset + done, size, offset));
    }
    done += static_cast<uint64_t>(got);
  }
  return Status();
}

}  // namespace kbundle
