// One regular file, open for reading, or a copy of bytes that never were one. pread only: a file
// that shrinks while it is open gives an error value, where a mapping would give SIGBUS.
#ifndef KBUNDLE_LOADER_FILE_VIEW_H_
#define KBUNDLE_LOADER_FILE_VIEW_H_

#include <cstdint>
#include <string>
#include <utility>

#include "kbundle/allocator.h"
#include "kbundle/status.h"

namespace kbundle {

// Owns the descriptor or the bytes. Movable. Read may be called from any thread.
class FileView {
 public:
  // kNotFound, kPermissionDenied, kInvalidArgument (not a regular file) or kUnavailable.
  static Result<FileView> Open(const std::string& path);
  // The file behind a descriptor, which stays the caller's: he may close it, and read on from where
  // he was. kInvalidArgument: it is none of a regular file.
  static Result<FileView> OfDescriptor(int fd);
  static FileView OfBytes(Buffer bytes);
  FileView(FileView&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), size_(other.size_), bytes_(std::move(other.bytes_)) {}
  FileView& operator=(FileView&&) = delete;
  ~FileView();

  uint64_t size() const { return size_; }  // when it was opened
  // All `size` bytes or an error: kDataLoss when the file has become shorter.
  Status Read(uint64_t offset, void* into, uint64_t size) const;

 private:
  FileView(int fd, uint64_t size) : fd_(fd), size_(size) {}
  static Result<FileView> Of(int fd);  // takes it
  int fd_;                             // -1: bytes_
  uint64_t size_;
  Buffer bytes_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_FILE_VIEW_H_
