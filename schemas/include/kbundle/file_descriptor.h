// A descriptor that is closed when its owner goes.
#ifndef KBUNDLE_FILE_DESCRIPTOR_H_
#define KBUNDLE_FILE_DESCRIPTOR_H_

#include <unistd.h>

namespace kbundle {

// Owns one descriptor, or none where it is negative, as a failed open() returns it. Neither copied
// nor moved: it lives in the block that opened it. What close() says is dropped, so that who writes
// and must know closes by itself.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  const int fd_;
};

}  // namespace kbundle

#endif  // KBUNDLE_FILE_DESCRIPTOR_H_
